"""The configuration of a compacting context."""

import inspect
import logging
from collections.abc import Iterator
from typing import NamedTuple

from amplifier_core import Provider
from amplifier_core.boundary import Boundary, at_once
from amplifier_core.utils.tool_messages import field_of
from amplifier_kit.config import ModuleConfig
from amplifier_kit.messages.stored_messages import IMAGE_TOKENS

logger = logging.getLogger(__name__)

VERBOSITIES = ("minimal", "normal", "verbose")
HIGHEST_LEVEL = 8

_METERS = ("estimate", "actual")


class CompactionSettings:
    """Every key that a compacting context reads, as attributes.

    `max_tokens` is the budget when nothing better is known; a context whose `max_tokens_explicit` is true also takes
    it as the ceiling of what a provider allows.
    """

    def __init__(self, config: ModuleConfig, *, protected_recent: float = 0.30) -> None:
        self.max_tokens = config.integer("max_tokens", 200_000, minimum=1)
        self.compact_threshold = config.number(
            "compact_threshold", 0.92, above=0, maximum=1, aliases=("compaction_threshold",)
        )
        self.target_usage = config.number("target_usage", 0.50, above=0, maximum=1)
        self.auto_compact = config.boolean("auto_compact", True)
        self.protected_recent = config.number("protected_recent", protected_recent, minimum=0, maximum=1)
        self.protected_tool_results = config.integer("protected_tool_results", 5)
        self.truncate_chars = config.integer("truncate_chars", 250, minimum=0)
        self.compaction_notice_enabled = config.boolean("compaction_notice_enabled", True)
        self.compaction_notice_token_reserve = config.integer("compaction_notice_token_reserve", 800, minimum=0)
        self.compaction_notice_verbosity = config.choice("compaction_notice_verbosity", "normal", VERBOSITIES)
        self.compaction_notice_min_level = config.integer(
            "compaction_notice_min_level", 1, minimum=1, maximum=HIGHEST_LEVEL
        )
        self.output_reserve_fraction = config.number("output_reserve_fraction", 0.5, minimum=0, maximum=1)
        self.token_meter = _meter(config)
        self.max_tool_result_bytes = config.integer("max_tool_result_bytes", 131_072, minimum=1024)
        self.image_token_estimate = config.integer("image_token_estimate", IMAGE_TOKENS, minimum=0)


def _meter(config: ModuleConfig) -> str:
    meter = config.raw("token_meter")
    if meter is None or meter in _METERS:
        return str(meter or _METERS[0])
    logger.warning(
        "%s: config key 'token_meter' is %r, allowed: %s; 'estimate' is used",
        config.module_id,
        meter,
        " or ".join(_METERS),
    )
    return _METERS[0]


# How many tokens a request may have: as asked for, as the provider's model allows, or as configured.


SAFETY_TOKENS = 4096


class Budget(NamedTuple):
    """A number of tokens and where it comes from."""

    tokens: int
    source: str


def find_budget(
    token_budget: int | None,
    provider: Provider | None,
    *,
    max_tokens: int,
    is_ceiling: bool,
    output_reserve_fraction: float,
) -> Budget:
    """Return the first budget there is: `token_budget`, the provider's, else `max_tokens`.

    What a provider allows is its model's window without a share of the output and a margin, never less than a
    quarter of the window; with `is_ceiling` it is at most `max_tokens`.
    """
    if token_budget is not None and token_budget > 0:
        return Budget(int(token_budget), "the caller")
    for source, info in _model_infos(provider):
        window, output = _number(info, "context_window"), _number(info, "max_output_tokens")
        if window and output:
            allowed = max(window - int(output * output_reserve_fraction) - SAFETY_TOKENS, window // 4)
            return Budget(min(allowed, max_tokens) if is_ceiling else allowed, source)
    return Budget(max_tokens, "max_tokens")


def _model_infos(provider: Provider | None) -> Iterator[tuple[str, object]]:
    """Yield where a model's limits may be found; many providers have `get_model_info`, which no contract asks for."""
    if provider is not None:
        yield "provider.get_model_info", _ask(provider, "get_model_info")
        yield "provider.get_info", field_of(_ask(provider, "get_info"), "defaults")


def _ask(provider: Provider, question: str) -> object:
    answer: object = None
    with Boundary(logger, "the provider does not say what its model allows: %s", level=logging.DEBUG):
        answer = at_once(getattr(provider, question)())
    return None if inspect.isawaitable(answer) else answer  # a budget is not worth a request to the vendor


def _number(info: object, name: str) -> int:
    value = field_of(info, name)
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0
