"""The configuration of provider-anthropic."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, cast
from urllib.parse import urlsplit

from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.lenient_config import LenientConfig
from amplifier_kit.providers.call import read_raw
from amplifier_kit.providers.cost import read_rates
from amplifier_kit.providers.retry import read_retry_config

from .model_facts import EFFORT_LEVELS, default_model

logger = logging.getLogger(__name__)

MODULE_ID = "provider-anthropic"
DEFAULT_BASE_URL = "https://api.anthropic.com"

_THINKING_TYPES = ("adaptive", "enabled")
_DISPLAYS = ("summarized", "omitted", "updates")


@dataclass(frozen=True, slots=True)
class AnthropicSettings:
    """Every key, read and checked; what does not fit is reported and replaced by the default.

    `max_tokens` is None for the most that the model in use can say, `extended_thinking` for "as the effort implies".
    """

    api_key: str | None = field(repr=False)
    base_url: str
    default_model: str
    max_tokens: int | None
    temperature: float
    timeout_s: float
    close_timeout_s: float
    priority: int
    raw: bool
    use_streaming: bool
    filtered: bool
    retry: RetryConfig
    overloaded_delay_multiplier: float
    max_concurrent_requests: int
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
    rates: dict[str, dict[str, Decimal]]

    @classmethod
    def read(cls, given: Mapping[str, Any] | None, *, api_key: str | None = None) -> "AnthropicSettings":
        """Read the configuration; `api_key` wins over its key, and both over the environment.

        Raises `ValueError` when `extra_request_params` is no mapping.
        """
        config = LenientConfig(MODULE_ID, given)
        settings = cls(
            api_key=api_key or _read_key(config) or os.environ.get("ANTHROPIC_API_KEY") or None,
            base_url=config.text("base_url", os.environ.get("ANTHROPIC_BASE_URL") or DEFAULT_BASE_URL),
            default_model=config.text("default_model", default_model(), aliases=("model",)),
            max_tokens=config.integer("max_tokens", None, minimum=1),
            temperature=config.number("temperature", 0.7, minimum=0, maximum=1),
            timeout_s=config.number("timeout", 600.0, above=0),
            close_timeout_s=config.number("close_timeout", 5.0, above=0),
            priority=config.integer("priority", 100),
            raw=read_raw(config),
            use_streaming=config.boolean("use_streaming", default=True),
            filtered=config.boolean("filtered", default=True),
            retry=read_retry_config(config),
            overloaded_delay_multiplier=config.number("overloaded_delay_multiplier", 10.0, above=0),
            max_concurrent_requests=config.integer("max_concurrent_requests", 5, minimum=0),
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
            rates=read_rates(config),
        )
        config.warn_unknown()
        return settings

    @property
    def problem(self) -> str:
        """What keeps a call from being made, empty when nothing does."""
        try:
            url = urlsplit(self.base_url)
            is_usable = url.scheme in ("http", "https") and bool(url.hostname)
        except ValueError:
            is_usable = False
        if not is_usable:
            return f"base_url is no http or https address; write it like {DEFAULT_BASE_URL}"
        if self.api_key is None:
            return "no API key; set ANTHROPIC_API_KEY, or api_key in its configuration"
        return ""


def _read_key(config: LenientConfig) -> str | None:
    """Return the configured key; one that is no text is not even named in the report."""
    key = config.raw("api_key")
    if key is not None and not isinstance(key, str):
        return config.refuse("api_key", f"a {type(key).__name__}", "a string", None)
    return key


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
