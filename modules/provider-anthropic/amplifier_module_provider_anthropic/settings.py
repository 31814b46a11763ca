"""The configuration of provider-anthropic."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, Literal, cast

from amplifier_kit.config import LenientConfig
from amplifier_kit.providers.cost import ModelTable
from amplifier_kit.providers.settings import Vendor, VendorSettings, read_shared

logger = logging.getLogger(__name__)

MODULE_ID = "provider-anthropic"
DEFAULT_BASE_URL = "https://api.anthropic.com"

_THINKING_TYPES = ("adaptive", "enabled")
_DISPLAYS = ("summarized", "omitted", "updates")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnthropicSettings(VendorSettings):
    """Every key, read and checked; what does not fit is reported and replaced by the default.

    `max_tokens` is None for the most that the model in use can say, `extended_thinking` for "as the effort implies".
    """

    max_tokens: int | None
    temperature: float
    filtered: bool
    reasoning_effort: str | None
    extended_thinking: bool | None
    thinking_budget_tokens: int | None
    thinking_budget_buffer: int
    thinking_type: str
    thinking_display: str
    enable_1m_context: bool
    enable_prompt_caching: bool
    cache_stable_region_ttl_1h: bool
    cache_infer_stability_from_history: bool
    beta_headers: list[str]
    extra_request_params: dict[str, Any]

    @classmethod
    def read(
        cls, given: Mapping[str, Any] | None, *, api_key: str | None = None, is_anthropic: bool = True
    ) -> "AnthropicSettings":
        """Read the configuration; `api_key` wins over its key, and both over the environment.

        A provider that is not Anthropic's gets neither Anthropic's key from the environment nor its address.
        Raises `ValueError` if `extra_request_params` is not a mapping.
        """
        config = LenientConfig(MODULE_ID, given)
        settings = cls(
            **read_shared(config, _vendor() if is_anthropic else _vendor().without_defaults(), api_key=api_key),
            max_tokens=config.integer("max_tokens", None, minimum=1),
            temperature=config.number("temperature", 0.7, minimum=0, maximum=1),
            filtered=config.boolean("filtered", default=True),
            reasoning_effort=_read_effort(config),
            extended_thinking=config.boolean("extended_thinking", default=cast(bool, None)),  # None: not said
            thinking_budget_tokens=config.integer("thinking_budget_tokens", None, minimum=1),
            thinking_budget_buffer=config.integer("thinking_budget_buffer", 8192, minimum=0),
            thinking_type=config.choice("thinking_type", "adaptive", _THINKING_TYPES),
            thinking_display=config.choice("thinking_display", "summarized", _DISPLAYS),
            enable_1m_context=config.boolean("enable_1m_context", default=False),
            enable_prompt_caching=config.boolean("enable_prompt_caching", default=True),
            cache_stable_region_ttl_1h=config.boolean("cache_stable_region_ttl_1h", default=False),
            cache_infer_stability_from_history=config.boolean("cache_infer_stability_from_history", default=True),
            beta_headers=_read_betas(config),
            extra_request_params=_read_extra_params(config),
        )
        config.warn_unknown()
        return settings


def _vendor() -> Vendor:
    return Vendor(MODULE_ID, "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", DEFAULT_BASE_URL, default_model())


def _read_effort(config: LenientConfig) -> str | None:
    older = config.text("effort", None)
    if older is not None:
        logger.warning("%s: config key 'effort' is deprecated, write 'reasoning_effort'", MODULE_ID)
    effort = config.text("reasoning_effort", older)
    if effort is None or effort == "none":
        return None
    effort = effort.lower()
    return effort if effort in EFFORT_LEVELS else config.refuse("reasoning_effort", effort, "low to max", None)


def _read_betas(config: LenientConfig) -> list[str]:
    given = config.raw("beta_headers")
    if given is None:
        return []
    if isinstance(given, str):
        given = given.split(",")
    if not isinstance(given, list) or not all(isinstance(flag, str) for flag in given):
        return config.refuse("beta_headers", given, "a string or a list of strings", [])
    return [flag.strip() for flag in given if flag.strip()]


def _read_extra_params(config: LenientConfig) -> dict[str, Any]:
    given = config.raw("extra_request_params")
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ValueError(  # noqa: TRY004 - what configurations raise
            f"{MODULE_ID}: config key 'extra_request_params' must be a mapping, got {type(given).__name__}"
        )
    return dict(given)


# What is known about a model: its row of `models.json`, corrected by what the vendor's own list says of it.


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

    def _corrected_thinking(self, known: Mapping[str, Any]) -> dict[str, Any]:
        if known.get("supported") is False:
            return {"thinking": "none", "thinking_types": ()}
        if self.thinking == "implicit":
            return {}
        thinks = self.thinking
        types = set(self.thinking_types)
        if known.get("supported") is True and thinks == "none":
            thinks, types = "optional", {"enabled"}
        is_adaptive = _inner(known, "types", "adaptive").get("supported")
        if is_adaptive is not None:
            types = types | {"adaptive"} if is_adaptive else types - {"adaptive"}
        if _inner(known, "types", "enabled").get("supported") is False:
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
