"""The configuration of provider-anthropic."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from amplifier_kit.lenient_config import LenientConfig
from amplifier_kit.providers.settings import Vendor, VendorSettings, read_shared

from .model_facts import EFFORT_LEVELS, default_model

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
