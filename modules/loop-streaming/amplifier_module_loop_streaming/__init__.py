"""loop-streaming: the agent loop that yields its answer while it comes and takes in messages while it runs."""

import logging
from collections.abc import Mapping
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import EXECUTION_END, EXECUTION_START
from amplifier_kit.config import ModuleConfig
from amplifier_kit.loops.orchestrator import LoopOrchestrator, mount_loop
from amplifier_kit.loops.settings import STEERING_INJECTED, LoopSettings

from .steering import SteeringQueue, SteeringQueueFull
from .turn import (
    MODULE_ID,
    RATE_LIMIT_DELAY,
    StreamingRequestBuilder,
    StreamingSettings,
    StreamingTurn,
)

__all__ = ["SteeringQueue", "SteeringQueueFull", "StreamingOrchestrator", "mount"]

__amplifier_module_type__ = "orchestrator"

logger = logging.getLogger(__name__)

_GOAL_KEYS = (
    "goal_stall_threshold",
    "goal_model_role",
    "goal_provider_preferences",
    "goal_max_transcript_messages",
    "goal_tool_content_clip_chars",
    "goal_transcript_char_budget",
    "goal_busy_stall_window",
    "goal_busy_stall_min_overlap",
    "goal_summary_max_reasons",
)


class StreamingOrchestrator(LoopOrchestrator):
    """Runs turns; `execute_stream` yields the answer.

    `stream_delay` (seconds) and `min_delay_between_calls_ms` are those of the configuration; each turn begins with what
    they are then.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        keys = ModuleConfig(MODULE_ID, config)
        super().__init__(LoopSettings.read(keys))
        self.stream_delay = keys.number("stream_delay", 0.0, minimum=0)
        self.min_delay_between_calls_ms = keys.number("min_delay_between_calls_ms", 0.0, minimum=0)
        if ignored := keys.accept(*_GOAL_KEYS):
            logger.warning("%s: goals are not pursued; without effect: %s", MODULE_ID, ", ".join(ignored))
        keys.warn_unknown()
        self._builder = StreamingRequestBuilder()

    def begin(self, *state: Any) -> StreamingTurn:
        streaming = StreamingSettings(self.stream_delay, self.min_delay_between_calls_ms)
        return StreamingTurn(streaming, self.settings, self._builder, *state)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the orchestrator and offer `session.steer`."""
    emitted = (EXECUTION_START, EXECUTION_END, STEERING_INJECTED, RATE_LIMIT_DELAY)
    await mount_loop(coordinator, MODULE_ID, StreamingOrchestrator(config), emitted)
