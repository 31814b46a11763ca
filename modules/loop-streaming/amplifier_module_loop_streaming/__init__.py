"""loop-streaming: the agent loop that yields its answer while it comes and takes in messages while it runs."""

import logging
from collections.abc import Mapping
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.events import EXECUTION_END, EXECUTION_START
from amplifier_kit.config import ModuleConfig
from amplifier_kit.loops.orchestrator import LoopOrchestrator
from amplifier_kit.loops.settings import LoopSettings
from amplifier_kit.mounting import contribute_events, offer_capability

from .steering import DEFAULT_MAXSIZE, SteeringQueue, SteeringQueueFull
from .turn import (
    MODULE_ID,
    RATE_LIMIT_DELAY,
    STEERING_INJECTED,
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
    """Runs turns; `execute_stream` yields the answer, `steer` reaches the turn that is running.

    `stream_delay` (seconds) and `min_delay_between_calls_ms` are those of the configuration; each turn begins with what
    they are then.
    """

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        keys = ModuleConfig(MODULE_ID, config)
        self.settings = LoopSettings.read(keys)
        self.stream_delay = keys.number("stream_delay", 0.0, minimum=0)
        self.min_delay_between_calls_ms = keys.number("min_delay_between_calls_ms", 0.0, minimum=0)
        self._steering = SteeringQueue(keys.integer("max_queued_steers", DEFAULT_MAXSIZE, minimum=1))
        if ignored := keys.accept(*_GOAL_KEYS):
            logger.warning("%s: goals are not pursued; without effect: %s", MODULE_ID, ", ".join(ignored))
        keys.warn_unknown()
        self._builder = StreamingRequestBuilder()

    def begin(self, *state: Any) -> StreamingTurn:
        streaming = StreamingSettings(self.stream_delay, self.min_delay_between_calls_ms)
        return StreamingTurn(streaming, self._steering, self.settings, self._builder, *state)

    def steer(self, message: str) -> None:
        """Hand the running turn a user message, which it takes in before its next provider call.

        May be called from any thread. Raises `ValueError` for an empty message and `SteeringQueueFull`.
        """
        self._steering.steer(message)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the orchestrator and offer `session.steer`."""
    orchestrator = StreamingOrchestrator(config)
    emitted = (EXECUTION_START, EXECUTION_END, STEERING_INJECTED, RATE_LIMIT_DELAY)
    contribute_events(coordinator, MODULE_ID, emitted)
    offer_capability(coordinator, "session.steer", orchestrator.steer)
    await coordinator.mount("orchestrator", orchestrator)
    logger.info("mounted %s", MODULE_ID)
