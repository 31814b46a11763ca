"""loop-events: the agent loop in which schedulers choose, and which never raises what a provider raised."""

import logging
from collections.abc import Mapping
from typing import Any

from amplifier_core import ModuleCoordinator, events
from amplifier_kit.config import ModuleConfig
from amplifier_kit.loops.announcements import by_preference, provider_error
from amplifier_kit.loops.hook_points import Ephemeral
from amplifier_kit.loops.orchestrator import LoopOrchestrator, mount_loop
from amplifier_kit.loops.requests import RequestBuilder
from amplifier_kit.loops.scheduling import DECISION_TOOL, TOOL_SELECTED, TOOL_SELECTING
from amplifier_kit.loops.settings import STEERING_INJECTED, LoopSettings
from amplifier_kit.loops.tool_calls import Outcome
from amplifier_kit.loops.transcript import Reply
from amplifier_kit.loops.turn import Turn

from .selection import ERROR_TOOL, SelectingToolCalls

__all__ = ["EventDrivenOrchestrator", "mount"]

__amplifier_module_type__ = "orchestrator"

MODULE_ID = "loop-events"
EMITTED_EVENTS = (
    events.EXECUTION_START,
    events.EXECUTION_END,
    TOOL_SELECTING,
    TOOL_SELECTED,
    ERROR_TOOL,
    DECISION_TOOL,
    "decision:agent_resolution",
    "decision:context_resolution",
    STEERING_INJECTED,
)

logger = logging.getLogger(__name__)


class EventDrivenTurn(Turn):
    """Runs tools one after another, each offered to the schedulers first."""

    orchestrator = MODULE_ID
    counts_from_one = True
    names_results = True
    last_events = (events.EXECUTION_END, events.ORCHESTRATOR_COMPLETE)
    tool_calls: SelectingToolCalls
    tool_calls_type = SelectingToolCalls

    def __init__(self, decision_timeout_s: float | None, settings: LoopSettings, *state: Any) -> None:
        super().__init__(settings, *state)
        self.tool_calls.decision_timeout_s = decision_timeout_s
        self._from_prompt: list[Ephemeral] = []

    def select_providers(self) -> list[tuple[str, Any]]:
        return by_preference(self.providers, self.settings.default_provider, rank=False)

    async def no_provider(self) -> None:
        await self._end_with("Error: No providers available")

    async def converse(self) -> None:
        self._from_prompt = self.points.take()
        await super().converse()

    def lasting_ephemerals(self) -> list[Ephemeral]:
        return self._from_prompt

    async def exchange(self, *, is_last: bool = False) -> Reply | None:
        try:
            return await super().exchange(is_last=is_last)
        except Exception as exc:
            if is_last:
                raise
            logger.exception("the provider failed; the turn ends with its error as the answer")
            await self._end_with(f"Error getting response: {exc}")
            return None

    async def report_provider_error(self, name: str, error: Exception) -> None:
        details = {"error_type": "completion_failed", "error_message": str(error), "severity": "high"}
        await self.points.emit(events.PROVIDER_ERROR, {**details, **provider_error(name, error)})

    async def run_batch(self, batch: list[Outcome]) -> BaseException | None:
        return await self.tool_calls.run(batch, parallel=False, should_stop=lambda: self.cancellation.is_requested)

    async def _end_with(self, error: str) -> None:
        self.status = "error"
        await self.say(error)


class EventDrivenOrchestrator(LoopOrchestrator):
    """Runs turns; a turn's state is its own."""

    def __init__(self, config: Mapping[str, Any] | None = None) -> None:
        keys = ModuleConfig(MODULE_ID, config)
        super().__init__(LoopSettings.read(keys, has_parallel_tools=False))
        timeout_s = keys.number("decision_timeout", 1.0, above=0)
        self._decision_timeout_s = timeout_s if keys.boolean("decision_events", False) else None
        keys.warn_unknown()
        self._builder = RequestBuilder()

    def begin(self, *state: Any) -> EventDrivenTurn:
        return EventDrivenTurn(self._decision_timeout_s, self.settings, self._builder, *state)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any] | None = None) -> None:
    """Mount the orchestrator and offer `session.steer`."""
    await mount_loop(coordinator, MODULE_ID, EventDrivenOrchestrator(config), EMITTED_EVENTS)
