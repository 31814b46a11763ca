"""Tools that are stopped the moment a turn is cancelled at once, whatever loop called them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from amplifier_core import ChatResponse, ToolResult

from .calls import CallLayer, ProviderCall, ProviderStep, ToolCall, ToolStep

CANCELLED = "cancelled"
"""The code of the error of a tool that was stopped."""


@dataclass(frozen=True)
class Patience:
    """How long a turn that was told to stop at once may take.

    `module_s` is for a module that does not cooperate, until its task is cancelled; `model_s` is the same while only a
    model is waited for, and nothing is left half done; after `last_s` more, what swallows even that is left behind.
    """

    module_s: float = 10.0
    model_s: float = 0.5
    last_s: float = 2.0

    @property
    def whole_end_s(self) -> float:
        """How long it may take until all of a cancelled turn is written down."""
        return 3 * self.module_s


class StoppableTools(CallLayer):
    """Cancels running tools on request. A tool that stops has a result that says so, and its loop ends the turn.

    It is the layer next to the tools: what has come out of one counts, while others still store it. `gate` is the
    layer before all others, at which calls end that have not begun.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self.is_stopped = False
        self.gate: CallLayer = _Gate(self)

    def begin(self) -> None:
        """Let the calls of another turn pass."""
        self.is_stopped = False

    def stop(self) -> None:
        """Stop every tool that runs; no call of this turn is begun any more."""
        self.is_stopped = True
        for task in self._running:
            task.cancel()

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        task = asyncio.current_task()
        if self.is_stopped or task is None or task in self._running:
            return _stopped(call) if self.is_stopped else await proceed(call)
        self._running.add(task)
        try:
            return await proceed(call)
        except asyncio.CancelledError:
            if not self.is_stopped or task.uncancel():  # someone else cancels the turn as well
                raise
            return _stopped(call)
        finally:
            self._running.discard(task)


class _Gate(CallLayer):
    """Lets nothing begin that is stopped."""

    def __init__(self, tools: StoppableTools) -> None:
        self._tools = tools

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        if self._tools.is_stopped:
            raise asyncio.CancelledError
        return await proceed(call)

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        return _stopped(call) if self._tools.is_stopped else await proceed(call)


def _stopped(call: ToolCall) -> ToolResult:
    return ToolResult(success=False, error={"message": f"{call.name} was cancelled", "code": CANCELLED})
