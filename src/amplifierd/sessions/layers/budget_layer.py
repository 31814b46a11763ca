"""Keeps one session's calls within the budget of its tree, and counts what they use.

A provider call that is not covered is not made, and no error is raised either, which a loop might retry or take to
another provider: the loop gets an answer that says why it ends here and calls no tool. So a turn ends properly under
any orchestrator, with a well-formed transcript. A tool call that is not covered gets a result that says so, and the
next provider call that answer.
"""

from __future__ import annotations

import asyncio
import importlib.util
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import amplifier_core
from amplifier_core import ChatRequest, ChatResponse, TextBlock, ToolResult
from amplifier_core.boundary import Boundary, settle
from amplifier_kit.messages.stored_messages import estimate_message, estimate_messages
from amplifier_kit.providers.cost import Prices, TokenCounts
from amplifier_kit.providers.messages import IdentityCache
from amplifierd.exceptions import BudgetExhaustedError
from amplifierd.sessions.conversation.message_digest import shared_prefix

from .calls import CallLayer, ProviderCall, ProviderStep, ToolCall, ToolStep
from .tree_budget import LimitState, TreeBudget
from .usage import NOTHING, ONE_TOOL_CALL, Usage

BUDGET_WARNING = "budget:warning"
BUDGET_EXHAUSTED = "budget:exhausted"
FINISH_REASON = "budget"

Emit = Callable[[str, dict[str, Any]], Awaitable[Any]]

_PRICED_WITHIN_S = 0.3
_MOST_CLOSINGS = 8  # a loop that asks on and on, whatever it is told, is ended by an error


class BudgetLayer(CallLayer):
    """Stands around every call of one session.

    `agent` names the agent that the session runs for, None for the root of a tree. `used` counts what the session used
    itself, without its children, beginning with what is known from before. After a turn, `exhausted` says why it ended
    early, `turn_used` what it took itself, and `turn_below` what the agents took that worked for it.

    It counts at once what the stored events will say. Of an event that could not be stored it hears through
    `take_back_call` and `take_back_response`: the events alone tell the next process what was used. `emit` must not
    wait, or what was counted could be left without its event.
    """

    def __init__(
        self,
        budget: TreeBudget,
        emit: Emit,
        *,
        agent: str | None = None,
        used: Usage | None = None,
        count: Callable[[ChatRequest], int] | None = None,
    ) -> None:
        self.budget = budget
        self._used_before = used or NOTHING
        self.turn_used = self.turn_below = NOTHING
        self.exhausted: BudgetExhaustedError | None = None
        self._emit = emit
        self._agent = agent
        self._estimator = CallEstimator(count)
        self._closings = 0
        self._used_for: IdentityCache[Usage] = IdentityCache()

    @property
    def used(self) -> Usage:
        return self._used_before + self.turn_used

    @used.setter
    def used(self, used: Usage) -> None:
        """Go on from what is known between two turns."""
        self._used_before, self.turn_used = used, NOTHING

    @property
    def turn_total(self) -> Usage:
        """What a turn took together with its agents; they worked while it ran, so their time is in its own."""
        return self.turn_used + self.turn_below

    def count_below(self, child: BudgetLayer) -> None:
        """Count what a child's turn took towards the turn that it worked for."""
        self.turn_below += replace(child.turn_total, seconds=0.0).for_agent(child._agent)

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Count a turn around its execution.

        Raises:
            BudgetExhaustedError: no turn, or no time, is left; nothing was begun. The event has been emitted.
        """
        self.exhausted, self._closings = None, 0
        self.used, self.turn_below = self.used, NOTHING
        before_s = self.budget.seconds
        try:
            counted = self.budget.begin_turn(self._agent)
        except BudgetExhaustedError as error:
            await self._stop(error)
            raise
        try:
            with counted:
                self.turn_used = Usage(turns=1)
                await self._warn()
                yield
        finally:
            self.turn_used += Usage(seconds=self.budget.seconds - before_s)

    async def provider_call(self, call: ProviderCall, proceed: ProviderStep) -> ChatResponse:
        if self.exhausted is not None:
            return self._closing(self.exhausted)
        estimate = await self._estimator.estimate(call, priced=self.budget.limits.cost_usd is not None)
        try:
            reservation = await self.budget.reserve(estimate.tokens, estimate.cost_usd)
        except BudgetExhaustedError as error:
            await self._stop(error)
            return self._closing(error)
        try:
            response = await self._estimator.counted(call, estimate, await proceed(call))
            used = self._estimator.used(estimate, response)
            self.budget.settle(reservation, used, self._agent)
        finally:
            self.budget.release(reservation)
        self.turn_used += used
        self._used_for.get(response, lambda _: used)
        await self._warn()
        return response

    async def tool_call(self, call: ToolCall, proceed: ToolStep) -> Any:
        if self.exhausted is None:
            try:
                self.budget.count_tool_call(self._agent)
            except BudgetExhaustedError as error:
                await self._stop(error)
        if self.exhausted is not None:
            return _not_run(call, self.exhausted)
        self.turn_used += ONE_TOOL_CALL
        await self._warn()
        return await proceed(call)

    def take_back_call(self) -> None:
        """Count a tool call no longer: its intent is not stored, and it never began."""
        self._take_back(ONE_TOOL_CALL)

    def take_back_response(self, response: ChatResponse) -> None:
        """Count no longer what a response used of which nothing is stored."""
        self._take_back(self._used_for.get(response, lambda _: NOTHING))

    def _take_back(self, used: Usage) -> None:
        self.budget.take_back(used, self._agent)
        self.turn_used += -used

    async def _warn(self) -> None:
        for state in self.budget.warnings():
            await self._emit(BUDGET_WARNING, state.to_json())

    async def _stop(self, error: BudgetExhaustedError) -> None:
        """Remember why the turn ends here, and tell it once."""
        if self.exhausted is None:
            self.exhausted = error
            state = LimitState(error.limit, error.used, error.allowed, error.unpriced_tokens)
            await self._emit(BUDGET_EXHAUSTED, state.to_json())

    def _closing(self, error: BudgetExhaustedError) -> ChatResponse:
        """Return the answer that ends the turn. It took nothing and calls nothing."""
        self._closings += 1
        if self._closings > _MOST_CLOSINGS:
            raise error
        nothing = amplifier_core.Usage(input_tokens=0, output_tokens=0, total_tokens=0, cost_usd=Decimal(0))
        return ChatResponse(
            content=[TextBlock(text=f"I stop here: {error.message}. Everything up to this point is kept.")],
            tool_calls=[],
            usage=nothing,
            finish_reason=FINISH_REASON,
            metadata={"synthetic": True, "source": FINISH_REASON},
        )


def _not_run(call: ToolCall, error: BudgetExhaustedError) -> ToolResult:
    message = f"{call.name} was not run: {error.message}"
    return ToolResult(success=False, error={"message": message, "code": "budget_exhausted"})


# What a provider call may use at most, estimated before it is made.


logger = logging.getLogger(__name__)

DEFAULT_OUTPUT_TOKENS = 4096
"""The longest output of a model about which neither the request nor its provider says anything."""


@dataclass(frozen=True, slots=True)
class CallEstimate:
    """A call's model, its input, and its output at most; a cost of None is unknown."""

    model: str
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None = None

    @property
    def tokens(self) -> int:
        return self.input_tokens + self.output_tokens


class CallEstimator:
    """Estimates the calls of one session. A message is counted once, however many requests it is in.

    `count` returns the tokens of the messages of a request, where someone else knows them.
    """

    def __init__(self, count: Callable[[ChatRequest], int] | None = None) -> None:
        self._count_messages = count or self._count
        self._counted: IdentityCache[int] = IdentityCache()
        self._messages: Sequence[object] = ()
        self._counts: list[int] = []
        self._facts: IdentityCache[_ProviderFacts] = IdentityCache()
        self._paid: dict[str, Usage] = {}

    async def estimate(self, call: ProviderCall, *, priced: bool = True) -> CallEstimate:
        """Return what a call may take; without `priced`, its price is not asked for."""
        facts = self._facts.get(call.provider, _ProviderFacts)
        request = call.request
        model = str(request.model or call.options.get("model") or facts.model)
        counted = self._count_messages(request) + sum(self._counted.get_all(request.tools or (), estimate_message))
        output = request.max_output_tokens or facts.max_output_tokens
        cost = await self._cost_of(call.provider, facts, model, TokenCounts(counted, output)) if priced else None
        return CallEstimate(model, counted, output, cost)

    async def cost_of(self, call: ProviderCall, model: str, input_tokens: int, output_tokens: int) -> Decimal | None:
        """Return what a call of that size costs, None when no price is known."""
        facts = self._facts.get(call.provider, _ProviderFacts)
        return await self._cost_of(call.provider, facts, model, TokenCounts(input_tokens, output_tokens))

    async def counted(self, call: ProviderCall, estimate: CallEstimate, response: ChatResponse) -> ChatResponse:
        """Return a response that says what it used: one that was stopped, or reports nothing, has an estimate."""
        if response.usage is not None:
            return response
        tokens, output = estimate.input_tokens, estimate_messages(response.content)
        cost = None
        with suppress(TimeoutError):  # a price list that has to be read first keeps no one waiting
            async with asyncio.timeout(_PRICED_WITHIN_S):
                cost = await self.cost_of(call, estimate.model, tokens, output)
        used = amplifier_core.Usage(
            input_tokens=tokens, output_tokens=output, total_tokens=tokens + output, cost_usd=cost
        )
        return response.model_copy(update={"usage": used})

    def used(self, estimate: CallEstimate, response: ChatResponse) -> Usage:
        """Return what a response says that its call used."""
        reported = response.usage or amplifier_core.Usage(input_tokens=0, output_tokens=0, total_tokens=0)
        model = getattr(response, "model", None) or (response.metadata or {}).get("model") or estimate.model
        used = Usage.of_call(reported, str(model))
        self._paid[estimate.model] = self._paid.get(estimate.model, NOTHING) + used
        return used

    def _count(self, request: ChatRequest) -> int:
        messages = request.messages
        known = shared_prefix(messages, self._messages)
        self._counts[known:] = self._counted.get_all(messages[known:], estimate_message)
        self._messages = messages[:]
        return sum(self._counts)

    async def _cost_of(self, provider: Any, facts: _ProviderFacts, model: str, counts: TokenCounts) -> Decimal | None:
        """Ask the provider, else the price list, else what the model's earlier calls cost by the token."""
        ask = getattr(provider, "estimate_cost", None)
        if callable(ask):
            with Boundary(logger, "provider %r cannot estimate its cost: %s", facts.provider_id):
                cost = await settle(ask(model, counts.input_tokens, counts.output_tokens))
                return cost if isinstance(cost, Decimal) else None
        paid = self._paid.get(model, NOTHING)
        if paid.unpriced_tokens:
            return None
        listed = await facts.prices.cost_of(model, counts) if facts.prices is not None else None
        if listed is not None or paid.cost_usd is None or not paid.tokens.total:
            return listed
        return paid.cost_usd / paid.tokens.total * (counts.input_tokens + counts.output_tokens)


class _ProviderFacts:
    """What a provider says about itself, asked once."""

    def __init__(self, provider: Any) -> None:
        info = None
        with Boundary(logger, "a provider cannot describe itself: %s", level=logging.DEBUG):
            info = provider.get_info()
        given = getattr(info, "defaults", None)
        defaults = given if isinstance(given, Mapping) else {}
        config = getattr(provider, "config", None)
        configured = config.get("max_tokens") if isinstance(config, Mapping) else None
        self.provider_id = str(getattr(info, "id", None) or getattr(provider, "name", ""))
        self.model = str(getattr(provider, "default_model", None) or defaults.get("model") or self.provider_id)
        known = (configured, defaults.get("max_output_tokens"), defaults.get("max_tokens"))
        self.max_output_tokens = next((n for n in known if isinstance(n, int) and n > 0), DEFAULT_OUTPUT_TOKENS)
        has_list = importlib.util.find_spec("genai_prices") is not None
        self.prices = Prices(self.provider_id, {}, provider_id=self.provider_id) if has_list else None
