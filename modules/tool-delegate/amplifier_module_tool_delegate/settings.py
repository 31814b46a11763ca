"""The configuration: which features there are, what a child gets of its parent's, and how much may be delegated."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_kit.config import LenientConfig

MODULE_ID = "tool-delegate"

_FEATURES = ("self_delegation", "session_resume", "context_inheritance", "provider_selection", "return_contract")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReturnContract:
    """Whether an agent is asked for its findings as data, and whether that block is taken out of the answer."""

    is_enabled: bool = False
    strips_block: bool = True

    def of_agent(self, given: Any) -> "ReturnContract":
        """Return the contract with what an agent's own `return_contract` says of it."""
        if isinstance(given, bool):
            return ReturnContract(given, self.strips_block)
        if not isinstance(given, Mapping):
            return self
        strips = given.get("strip_block", self.strips_block)
        return ReturnContract(given.get("enabled", True) is not False, strips is not False)


@dataclass(frozen=True, slots=True)
class CallBudget:
    """How many calls of its model a child has, None for no limit, and when it is warned."""

    max_llm_calls: int | None = None
    warn_ratio: float = 0.8

    def of_call(self, given: int | None) -> "CallBudget":
        return self if given is None else CallBudget(checked_calls(given, "max_llm_calls"), self.warn_ratio)

    def of_agent(self, given: Any) -> "CallBudget":
        """Return the budget with what an agent's own `budget` says, which only narrows it."""
        calls = given.get("max_llm_calls") if isinstance(given, Mapping) else None
        if not isinstance(calls, int) or isinstance(calls, bool) or calls <= 0:
            return self
        return CallBudget(min(calls, self.max_llm_calls or calls), self.warn_ratio)

    @property
    def orchestrator_config(self) -> dict[str, Any]:
        if self.max_llm_calls is None:
            return {}
        return {"max_iterations": self.max_llm_calls, "budget_warn_ratio": self.warn_ratio}


@dataclass(frozen=True, slots=True)
class DelegateSettings:
    """`max_*` of the tree hold for all sessions below the user's together."""

    delegates_to_self: bool
    max_self_depth: int
    resumes: bool
    inherits_context: bool
    max_turns: int
    selects_provider: bool
    contract: ReturnContract
    tool_inheritance: dict[str, list[str]]
    hook_inheritance: dict[str, list[str]]
    timeout_s: float | None
    budget: CallBudget
    is_role_strict: bool
    max_spawns: int | None
    partial_max_chars: int
    max_concurrent: int
    max_depth: int
    max_total: int

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> "DelegateSettings":
        """Return the settings.

        Raises:
            TypeError: a budget is not a number.
            ValueError: it is negative.
        """
        config = LenientConfig(MODULE_ID, given)
        features, settings = config.mapping("features", {}), _part(config.mapping("settings", {}), "settings")
        feature = {name: _feature(features.get(name), name) for name in _FEATURES}
        _warn_unknown("features", features, _FEATURES)
        budget = CallBudget(
            checked_calls(settings.raw("max_llm_calls"), "settings.max_llm_calls"),
            _checked_ratio(settings.raw("budget_warn_ratio")),
        )
        excluded_tools = settings.strings("exclude_tools", ["tool-delegate"], takes_one=True)
        excluded_hooks = settings.strings("exclude_hooks", [], takes_one=True)
        read = cls(
            delegates_to_self=feature["self_delegation"].boolean("enabled", True),
            max_self_depth=feature["self_delegation"].integer("max_depth", 3, minimum=0),
            resumes=feature["session_resume"].boolean("enabled", True),
            inherits_context=feature["context_inheritance"].boolean("enabled", True),
            max_turns=feature["context_inheritance"].integer("max_turns", 10, minimum=0),
            selects_provider=feature["provider_selection"].boolean("enabled", True),
            contract=ReturnContract(
                feature["return_contract"].boolean("enabled", False),
                feature["return_contract"].boolean("strip_block", True),
            ),
            tool_inheritance={"exclude_tools": excluded_tools} if excluded_tools else {},
            hook_inheritance={"exclude_hooks": excluded_hooks} if excluded_hooks else {},
            timeout_s=settings.number("timeout", None, above=0),
            budget=budget,
            is_role_strict=settings.boolean("strict_model_role", False),
            max_spawns=settings.integer("max_spawns_per_session", None, minimum=0),
            partial_max_chars=settings.integer("partial_max_chars", 20_000, minimum=0),
            max_concurrent=config.integer("max_concurrent", 8, minimum=1),
            max_depth=config.integer("max_depth", 5, minimum=0),
            max_total=config.integer("max_total", 200, minimum=0),
        )
        feature["return_contract"].accept("reask_on_nonconformance")
        config.accept("max_background")  # for delegations that nothing waits for; there are none yet
        for part in (config, settings, *feature.values()):
            part.warn_unknown()
        return read

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The features that are switched on, by the names of their keys."""
        return tuple(
            name
            for name, is_on in (
                ("self_delegation", self.delegates_to_self),
                ("session_resume", self.resumes),
                ("context_inheritance", self.inherits_context),
                ("provider_selection", self.selects_provider),
            )
            if is_on
        )


def checked_calls(given: Any, name: str) -> int | None:
    """Return a number of calls, None for no limit, which 0 means as well.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is negative.
    """
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(f"{MODULE_ID}: {name} must be a whole number, it is {given!r}")
    if given < 0:
        raise ValueError(f"{MODULE_ID}: {name} must not be negative, it is {given}")
    return given or None


def _checked_ratio(given: Any) -> float:
    if given is None:
        return 0.8
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError(f"{MODULE_ID}: settings.budget_warn_ratio must be a number, it is {given!r}")
    if not 0 < given <= 1:
        raise ValueError(f"{MODULE_ID}: settings.budget_warn_ratio must be above 0 and at most 1, it is {given}")
    return float(given)


def _feature(given: Any, name: str) -> LenientConfig:
    """Return the keys of one feature; true or false alone switches it."""
    return _part({"enabled": given} if isinstance(given, bool) else given, f"features.{name}")


def _part(given: Any, name: str) -> LenientConfig:
    return LenientConfig(f"{MODULE_ID} {name}", given)


def _warn_unknown(name: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
    if unknown := sorted(map(str, given.keys() - set(known))):
        logger.warning("%s: unknown %s are ignored: %s", MODULE_ID, name, ", ".join(unknown))
