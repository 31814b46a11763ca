"""The orchestrator around a turn: what the kernel calls, and what applications read from."""

import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from amplifier_core import ContextManager, HookRegistry, ModuleCoordinator, Provider, Tool
from amplifier_kit.mounting import contribute_events, offer_capability
from amplifier_kit.types import Coordinator

from .settings import CAPABILITY, LoopSettings, SteeringQueue
from .turn import Turn

logger = logging.getLogger(__name__)


class LoopOrchestrator(ABC):
    """Runs turns, one at a time or many at once; a turn's state is its own. `steer` reaches the one that is running."""

    def __init__(self, settings: LoopSettings) -> None:
        self.settings = settings
        self._steering = SteeringQueue(settings.max_queued_steers)

    @abstractmethod
    def begin(self, *state: Any) -> Turn:
        """Return a turn; `state` is a turn's prompt, context, providers, tools, hooks and coordinator."""

    async def execute(
        self,
        prompt: str,
        context: ContextManager,
        providers: Mapping[str, Provider],
        tools: Mapping[str, Tool],
        hooks: HookRegistry,
        coordinator: Coordinator = None,
        **_: object,
    ) -> str:
        """Run one turn and return its answer."""
        return await self._begin(prompt, context, providers, tools, hooks, coordinator).answer()

    async def execute_stream(
        self,
        prompt: str,
        context: ContextManager,
        providers: Mapping[str, Provider],
        tools: Mapping[str, Tool],
        hooks: HookRegistry,
        coordinator: Coordinator = None,
    ) -> AsyncIterator[str]:
        """Run one turn and yield its answer as it comes; a reader that leaves early cancels the turn."""
        turn = self._begin(prompt, context, providers, tools, hooks, coordinator)
        async with aclosing(turn.fragments()) as fragments:
            async for fragment in fragments:
                yield fragment

    def steer(self, message: str) -> None:
        """Hand the running turn a user message, which it takes in before its next provider call.

        May be called from any thread. Raises `ValueError` for an empty message and `SteeringQueueFull`.
        """
        self._steering.steer(message)

    def _begin(self, *state: Any) -> Turn:
        turn = self.begin(*state)
        turn.steering = self._steering
        return turn


async def mount_loop(
    coordinator: ModuleCoordinator, module_id: str, orchestrator: LoopOrchestrator, emitted: Iterable[str]
) -> None:
    """Mount an orchestrator, announce the events that it emits, and offer `session.steer`."""
    contribute_events(coordinator, module_id, tuple(emitted))
    offer_capability(coordinator, CAPABILITY, orchestrator.steer)
    await coordinator.mount("orchestrator", orchestrator)
    logger.info("mounted %s", module_id)
