"""Calls of models and tools that are stopped the moment their turn is cancelled, whatever loop made them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from amplifier_core import ChatResponse, TextBlock, ToolResult, Usage
from amplifier_core.utils.tool_messages import Call, calls_in, results_in
from amplifier_kit.messages.conversation import as_tool_result
from amplifierd.sessions.turn_result import ToolCallSummary, ToolStatus

from .calls import CallLayer, ProviderCall, ProviderStep, ToolCall, ToolStep

CANCELLED = "cancelled"
"""The code of the error of a tool that was stopped, and why the answer of a model that was stopped ends."""

_NOTHING = Usage(input_tokens=0, output_tokens=0, total_tokens=0, cost_usd=Decimal(0))


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


class StoppableCalls(CallLayer):
    """Cancels running calls on request. A tool that stops has a result that says so, and its loop ends the turn.

    A model that is stopped has answered with what it had said so far, whose blocks `said` returns. `keep` gets the
    text, `kept` has it from then on, and what stands further out counts it like any answer. It is the layer next to
    the tools: what has come out of one counts, while others still store it. `gate` is the layer before all others, at
    which calls end that have not begun, and where the loop learns that its turn is over.
    """

    def __init__(self, said: Callable[[], list[Any]], keep: Callable[[str], Awaitable[None]]) -> None:
        self._said, self._keep = said, keep
        self._tools: set[asyncio.Task[Any]] = set()
        self._models: set[asyncio.Task[Any]] = set()
        self.is_stopping = self.is_stopped = False
        self.kept = ""
        self.gate: CallLayer = _Gate(self)

    def begin(self) -> None:
        """Let the calls of another turn pass."""
        self.is_stopping = self.is_stopped = False
        self.kept = ""

    def finish(self) -> None:
        """Stop the model, and let tools that run come to their end; no further call of this turn is begun."""
        if not self.is_stopping:
            self.is_stopping = True
            for task in self._models:
                task.cancel()

    def stop(self) -> None:
        """Stop everything that runs; no call of this turn is begun any more."""
        self.finish()
        self.is_stopped = True
        for task in self._tools:
            task.cancel()

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        task = asyncio.current_task()
        if self.is_stopping or task is None:
            raise asyncio.CancelledError
        self._models.add(task)
        try:
            return await proceed(call)
        except asyncio.CancelledError:
            if not self.is_stopping:
                raise
            task.uncancel()  # the gate raises it again
            said = self._said()
            self.kept = "".join(block.text for block in said if isinstance(block, TextBlock))
            if self.kept.strip():
                await self._keep(self.kept)
            usage = None if said else _NOTHING
            return ChatResponse(content=said, usage=usage, finish_reason=CANCELLED, metadata={"partial": True})
        finally:
            self._models.discard(task)

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        task = asyncio.current_task()
        if self.is_stopped or task is None or task in self._tools:
            return _stopped(call) if self.is_stopped else await proceed(call)
        self._tools.add(task)
        try:
            return await proceed(call)
        except asyncio.CancelledError:
            if not self.is_stopped or task.uncancel():  # someone else cancels the turn as well
                raise
            return _stopped(call)
        finally:
            self._tools.discard(task)


class _Gate(CallLayer):
    """Lets nothing begin in a turn that is to end."""

    def __init__(self, calls: StoppableCalls) -> None:
        self._calls = calls

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        if self._calls.is_stopping:
            raise asyncio.CancelledError
        response = await proceed(call)
        if is_partial(response):
            raise asyncio.CancelledError
        return response

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        return _stopped(call) if self._calls.is_stopping else await proceed(call)


def is_partial(response: ChatResponse) -> bool:
    """Say whether a response is what had been said when its model was stopped."""
    return (response.metadata or {}).get("partial") is True


def _stopped(call: ToolCall) -> ToolResult:
    return ToolResult(success=False, error={"message": f"{call.name} was cancelled", "code": CANCELLED})


class TurnSummary(CallLayer):
    """Notes the calls of one turn after another."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self._calls: dict[str, ToolCallSummary] = {}
        self._unanswered: dict[str, Call] = {}

    def begin(self) -> None:
        self.finish_reason = None
        self._calls, self._unanswered = {}, {}

    @property
    def tool_calls(self) -> tuple[ToolCallSummary, ...]:
        return tuple(self._calls.values())

    def unanswered(self) -> tuple[tuple[Call, bool], ...]:
        """Return the calls that have no result in the conversation, each with whether it was begun."""
        return tuple((call, self._calls[call.id].status != "not_run") for call in self._unanswered.values())

    def hear(self, message: Mapping[str, Any]) -> None:
        """Note the calls that a message asks for, and the answers to calls that never reached their tool."""
        for call in calls_in(message):
            self._unanswered[call.id] = call
            self._calls.setdefault(call.id, ToolCallSummary(call.id, call.name, "not_run"))
        for result in results_in(message) or ():
            self._unanswered.pop(result.call_id, None)
            noted = self._calls.get(result.call_id)
            if noted is not None and noted.status == "not_run" and str(result.output).startswith("Denied"):
                self._note(noted.id, noted.name, "denied")

    def forget(self, message: Mapping[str, Any]) -> None:
        """Leave the calls of a message without results that is not in the transcript: theirs would answer nothing."""
        for call in calls_in(message):
            self._unanswered.pop(call.id, None)

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        response = await proceed(call)
        self.finish_reason = response.finish_reason
        return response

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        status: ToolStatus = "cancelled"
        try:
            returned = await proceed(call)
            status = _status_of(as_tool_result(returned))
        except Exception:
            status = "failed"
            raise
        finally:
            self._note(call.tool_call_id, call.name, status)
        return returned

    def _note(self, call_id: str, name: str, status: ToolStatus) -> None:
        self._calls[call_id] = ToolCallSummary(call_id, name, status)


def _status_of(result: ToolResult) -> ToolStatus:
    if result.success:
        return "done"
    return "cancelled" if (result.error or {}).get("code") == CANCELLED else "failed"
