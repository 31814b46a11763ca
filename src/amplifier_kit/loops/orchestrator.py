"""The orchestrator around a turn: what the kernel calls, and what applications read from."""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

from amplifier_core import ContextManager, HookRegistry, Provider, Tool
from amplifier_kit.types import Coordinator

from .turn import Turn


class LoopOrchestrator(ABC):
    """Runs turns, one at a time or many at once; a turn's state is its own."""

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
        return await self.begin(prompt, context, providers, tools, hooks, coordinator).answer()

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
        turn = self.begin(prompt, context, providers, tools, hooks, coordinator)
        async with aclosing(turn.fragments()) as fragments:
            async for fragment in fragments:
                yield fragment
