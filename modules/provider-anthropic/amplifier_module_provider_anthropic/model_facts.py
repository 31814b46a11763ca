"""What is known about a model: its row of `models.json`, corrected by what the vendor's own list says of it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal

from amplifier_kit.providers.models import ModelTable

EFFORT_LEVELS = ("low", "medium", "high", "xhigh", "max")

_TABLE = ModelTable(__package__)
_LONG_CONTEXT_WINDOW = 1_000_000
_USUAL_BUDGET_TOKENS = 32_000


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """One model.

    `thinking` says whether a model never thinks, thinks when asked, always thinks, or always thinks without a word of
    it in the request (`implicit`). `context_window` is what the vendor's list says, None while that was not asked.
    """

    family: str
    max_output_tokens: int
    has_1m_context: bool
    thinking: Literal["none", "optional", "always", "implicit"]
    thinking_types: tuple[str, ...]
    effort_levels: tuple[str, ...]
    has_sampling: bool
    has_display: bool
    default_budget_tokens: int | None
    min_cacheable_tokens: int
    has_forced_tool_choice: bool
    context_window: int | None = None

    @property
    def can_disable_thinking(self) -> bool:
        return self.thinking in ("none", "optional")

    @property
    def budget_tokens(self) -> int:
        """How long the model may think by default."""
        return self.default_budget_tokens or _USUAL_BUDGET_TOKENS

    @property
    def capabilities(self) -> list[str]:
        """The names under which applications look for what a model can do."""
        thinking = ["thinking"] if self.thinking != "none" else []
        if self.family == "haiku":
            return ["tools", "streaming", "json_mode", "fast", "vision", *thinking]
        return ["tools", *thinking, "streaming", "json_mode", "vision"]

    def window(self, *, enable_1m_context: bool) -> int:
        """Return the context window to advertise."""
        if self.context_window is not None:
            return self.context_window
        return _LONG_CONTEXT_WINDOW if enable_1m_context and self.has_1m_context else _base_window()

    def corrected(self, entry: Mapping[str, Any]) -> "ModelFacts":
        """Return the facts as an entry of the vendor's list has them; what it does not mention stays."""
        changes: dict[str, Any] = {}
        if isinstance(window := entry.get("max_input_tokens"), int):
            changes["context_window"] = window
        if isinstance(most := entry.get("max_tokens"), int):
            changes["max_output_tokens"] = most
        effort = _inner(entry, "capabilities", "effort")
        if effort.get("supported") is False or any(level in effort for level in EFFORT_LEVELS):
            offered = [level for level in self.effort_levels if _inner(effort, level).get("supported") is True]
            changes["effort_levels"] = tuple(offered) if effort.get("supported") is not False else ()
        return replace(self, **changes, **self._corrected_thinking(_inner(entry, "capabilities", "thinking")))

    def _corrected_thinking(self, told: Mapping[str, Any]) -> dict[str, Any]:
        if told.get("supported") is False:
            return {"thinking": "none", "thinking_types": ()}
        if self.thinking == "implicit":
            return {}
        thinks = self.thinking
        types = set(self.thinking_types)
        if told.get("supported") is True and thinks == "none":
            thinks, types = "optional", {"enabled"}
        is_adaptive = _inner(told, "types", "adaptive").get("supported")
        if is_adaptive is not None:
            types = types | {"adaptive"} if is_adaptive else types - {"adaptive"}
        if _inner(told, "types", "enabled").get("supported") is False:
            types -= {"enabled"}
        return {"thinking": thinks if types else "none", "thinking_types": tuple(sorted(types))}


@cache
def facts_of(model: str) -> ModelFacts:
    """Return what `models.json` says about a model id; every id has a row."""
    row = {**_TABLE.row(model), "family": family_of(model)}
    values: dict[str, Any] = {field.name: row[field.name] for field in fields(ModelFacts) if field.name in row}
    return ModelFacts(**values | {name: tuple(values[name]) for name in ("thinking_types", "effort_levels")})


def family_of(model: str) -> str:
    """Return the family that a model id names; ids that name none count as the default one."""
    families: list[str] = _TABLE.data["families"]
    return next((family for family in families if family in model.lower()), str(_TABLE.data["default_family"]))


def default_model() -> str:
    """Return the model that is used if none is named."""
    return _TABLE.default_model


def native_tool_beta(tool_type: str) -> str | None:
    """Return the beta flag that a tool of the vendor's own needs."""
    betas: dict[str, str] = _TABLE.data["native_tool_betas"]
    return betas.get(tool_type)


def _base_window() -> int:
    return int(_TABLE.data["base_context_window"])


def _inner(source: Mapping[str, Any], *keys: str) -> Mapping[str, Any]:
    """Return a mapping inside mappings, empty where there is none."""
    for key in keys:
        value = source.get(key)
        source = value if isinstance(value, Mapping) else {}
    return source
