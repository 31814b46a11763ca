"""Answers the calls of a session from a record, and compares what it sends with what was sent then."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from amplifier_core import ChatResponse, ToolResult
from amplifier_kit.messages.stored_messages import estimate_messages
from amplifierd.exceptions import ReplayError
from amplifierd.sessions.conversation.message_digest import canonical_message
from amplifierd.sessions.conversation.recorded_session import RecordedSession, RecordedTurn, answer_to
from amplifierd.sessions.layers.budget_layer import CallEstimator
from amplifierd.sessions.layers.calls import CallLayer, ProviderCall, ProviderStep, ToolCall, ToolStep
from amplifierd.sessions.layers.receipts import input_hash

from .divergence import Divergence, RequestComparison
from .stored_requests import StoredRequest

Steer = Callable[[str], Awaitable[Any]]


@dataclass
class Totals:
    """What the recorded requests and the new ones come to; a cost of None is unknown."""

    old_tokens: int = 0
    new_tokens: int = 0
    old_cost: Decimal | None = Decimal(0)
    new_cost: Decimal | None = Decimal(0)

    def add(self, old_tokens: int, new_tokens: int, old_cost: Decimal | None, new_cost: Decimal | None) -> None:
        self.old_tokens += old_tokens
        self.new_tokens += new_tokens
        self.old_cost = None if self.old_cost is None or old_cost is None else self.old_cost + old_cost
        self.new_cost = None if self.new_cost is None or new_cost is None else self.new_cost + new_cost


@dataclass
class ReplayLayer(CallLayer):
    """Stands in place of every real call of one session.

    `divergences` are those of the first request that differs, `stopped` says why nothing more can be replayed.
    """

    recorded: RecordedSession
    comparison: RequestComparison
    steer: Steer
    divergences: list[Divergence] = field(default_factory=list)
    stopped: str = ""
    replayed: int = 0
    totals: Totals = field(default_factory=Totals)

    def __post_init__(self) -> None:
        self._turn: RecordedTurn | None = None
        self._next = 0
        self._estimator = CallEstimator()

    def begin(self, turn: RecordedTurn) -> None:
        """Go on with a turn of the record."""
        self._turn, self._next = turn, 0

    def end(self) -> None:
        """See whether the turn took as many requests as it did then."""
        turn = self._turn
        if turn is not None and not self.stopped and self._next < len(turn.requests):
            self._diverge(_count(turn.requests[self._next], len(turn.requests), self._next))

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        request = self._take()
        found = self.comparison.compare(request, call)
        self._diverge(*found)
        await self._count(request, call)
        try:
            answer = answer_to(request)
        except ReplayError as error:
            raise self._stop(str(error)) from error
        for text in self._turn.steering.get(request.request_id, ()) if self._turn else ():
            await self.steer(text)
        self.replayed += 1
        return answer

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> ToolResult:
        recorded = self.recorded.calls.get(call.tool_call_id)
        place = f"tool_calls.{call.tool_call_id}"
        refused = self._turn.refused if self._turn else {}
        if call.tool_call_id in refused:
            return ToolResult(success=False, output=refused[call.tool_call_id])
        if recorded is None or recorded.outcome is None:
            state = "not run" if recorded is None else "interrupted"
            self._diverge(self._tool(place, state, f"{call.name} runs"))
            return ToolResult(success=False, error={"message": f"{call.name}: {state} in the record"})
        if recorded.tool_name != call.name:
            self._diverge(self._tool(f"{place}.name", recorded.tool_name, call.name))
        elif recorded.input_hash != input_hash(call.input):
            self._diverge(self._tool(f"{place}.input", recorded.input_hash, input_hash(call.input)))
        return recorded.result()

    def _take(self) -> StoredRequest:
        turn = self._turn
        if turn is None or self.stopped:
            raise self._stop(self.stopped or "a request came before the first turn")
        if self._next >= len(turn.requests):
            last = turn.requests[-1]
            self._diverge(_count(last, len(turn.requests), self._next + 1))
            raise self._stop(f"turn {turn.number} asks the provider more often than it did in the record")
        self._next += 1
        return turn.requests[self._next - 1]

    async def _count(self, request: StoredRequest, call: ProviderCall) -> None:
        estimate = await self._estimator.estimate(call, priced=False)
        old = request.tokens + estimate_messages(request.tools)
        offered = [spec.model_dump(mode="json", exclude_none=True) for spec in call.request.tools or ()]
        new = estimate_messages(map(canonical_message, call.request.messages)) + estimate_messages(offered)
        output = int((request.response.usage if request.response else {}).get("output_tokens") or 0)
        prices = [await self._estimator.cost_of(call, estimate.model, tokens, output) for tokens in (old, new)]
        self.totals.add(old, new, *prices)

    def _diverge(self, *found: Divergence) -> None:
        if not self.divergences:
            self.divergences += found

    def _tool(self, field_name: str, old: str, new: str) -> Divergence:
        turn = self._turn
        number = turn.requests[self._next - 1].number if turn and self._next else 0
        return Divergence(number, turn.number if turn else 0, field_name, old, new)

    def _stop(self, reason: str) -> ReplayError:
        """Return the error that ends the replay here, whatever the loop makes of it."""
        self.stopped = reason
        return ReplayError(reason)


def _count(request: StoredRequest, old: int, new: int) -> Divergence:
    return Divergence(request.number, request.turn, "requests", f"{old} in this turn", f"{new} in this turn")
