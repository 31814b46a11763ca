"""The configuration of a compacting context."""

import logging

from amplifier_kit.config import ModuleConfig
from amplifier_kit.messages.token_estimate import IMAGE_TOKENS

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
