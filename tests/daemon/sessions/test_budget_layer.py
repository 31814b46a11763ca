"""A session that comes to the end of its budget, under every loop."""

import asyncio
from decimal import Decimal
from typing import Any

import pytest
from layered import LOOPS, Recorded, layered, plan
from turns import FunctionTool, answer, calling, echo

from amplifier_core import AmplifierSession, ChatRequest, ChatResponse, ProviderInfo, ToolResult, Usage
from amplifier_core.testing import MockCoordinator, MockProvider
from amplifierd.exceptions import BudgetExhaustedError
from amplifierd.limits import Limits
from amplifierd.sessions.layers.budget_layer import BUDGET_EXHAUSTED, BUDGET_WARNING, BudgetLayer
from amplifierd.sessions.layers.calls import LayeredOrchestrator
from amplifierd.sessions.layers.tree_budget import TreeBudget


class Metered(MockProvider):
    """Says what it may use and what it used."""

    default_model = "metered"

    def __init__(self, responses: Any, *, max_output: int = 100, used: int = 50, cost: str | None = None) -> None:
        super().__init__(responses)
        self._max_output, self._cost = max_output, None if cost is None else Decimal(cost)
        self._usage = Usage(input_tokens=used - 10, output_tokens=10, total_tokens=used, cost_usd=self._cost)

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="metered", display_name="M", defaults={"max_output_tokens": self._max_output})

    def estimate_cost(self, model: str, input_tokens: int, output_tokens: int) -> Decimal | None:
        return self._cost

    async def complete(self, request: ChatRequest, **options: Any) -> ChatResponse:
        response = await super().complete(request, **options)
        return response.model_copy(update={"usage": self._usage})


def on_and_on() -> list[ChatResponse]:
    return [calling((f"c{n}", "echo", {"n": n})) for n in range(20)]


async def messages_of(session: AmplifierSession) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = await session.coordinator.get("context").get_messages()
    return [message for message in messages if message["role"] != "system"]


def assert_well_formed(messages: list[dict[str, Any]]) -> None:
    """Every call has its result directly after it, and the last message is an answer."""
    asked = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert asked == answered
    assert messages[-1]["role"] == "assistant"
    assert not messages[-1].get("tool_calls")


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_ends_before_the_call_that_could_exceed_the_tokens(loop: str) -> None:
    events, provider, tool = Recorded(), Metered(on_and_on(), max_output=100, used=100), echo()
    layer = BudgetLayer(TreeBudget(Limits(total_tokens=600)), events.emit)
    async with layered(plan(loop), [layer], {"metered": provider}, tool) as session:
        async with layer.turn():
            said = await session.execute("Go on")
        messages = await messages_of(session)

    assert "the limit total_tokens = 600 of this session tree is reached" in said
    assert layer.budget.used.tokens.total <= 600
    assert (provider.call_count, len(tool.inputs)) == (layer.used.tokens.total // 100, provider.call_count)
    assert_well_formed(messages)
    (exhausted,) = events.of(BUDGET_EXHAUSTED)
    assert (exhausted["limit"], exhausted["allowed"]) == ("total_tokens", 600)
    assert exhausted["used"] == layer.used.tokens.total
    assert layer.exhausted is not None


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_turn_ends_when_no_tool_call_is_left_and_the_refused_call_has_a_result(loop: str) -> None:
    events, provider, tool = Recorded(), Metered(on_and_on()), echo()
    layer = BudgetLayer(TreeBudget(Limits(tool_calls=3)), events.emit)
    async with layered(plan(loop), [layer], {"metered": provider}, tool) as session:
        async with layer.turn():
            said = await session.execute("Go on")
        messages = await messages_of(session)

    assert "the limit tool_calls = 3" in said
    assert (len(tool.inputs), provider.call_count) == (3, 4)
    assert_well_formed(messages)
    assert "echo was not run" in str(messages[-2]["content"])
    assert [data["used"] for data in events.of(BUDGET_WARNING)] == [3]
    assert len(events.of(BUDGET_EXHAUSTED)) == 1


@pytest.mark.parametrize("loop", LOOPS)
async def test_calls_of_one_response_run_as_far_as_they_are_covered(loop: str) -> None:
    calls = [(f"c{n}", "echo", {"n": n}) for n in range(5)]
    provider, tool = Metered([calling(*calls), answer()]), echo()
    layer = BudgetLayer(TreeBudget(Limits(tool_calls=3)), Recorded().emit)
    async with layered(plan(loop), [layer], {"metered": provider}, tool) as session:
        async with layer.turn():
            await session.execute("Go on")
        messages = await messages_of(session)

    assert len(tool.inputs) == 3
    results = [str(message["content"]) for message in messages if message["role"] == "tool"]
    assert ["was not run" in result for result in results] == [False, False, False, True, True]
    assert_well_formed(messages)


@pytest.mark.parametrize("loop", LOOPS)
async def test_a_refused_call_is_neither_an_error_nor_taken_to_another_provider(loop: str) -> None:
    first, second = Metered([answer()]), Metered([answer()])
    layer = BudgetLayer(TreeBudget(Limits(total_tokens=10)), Recorded().emit)
    errors: list[str] = []
    async with layered(plan(loop, provider_failover=True), [layer], {"one": first, "two": second}) as session:

        async def note(event: str, data: dict[str, Any]) -> None:
            errors.append(event)

        session.coordinator.hooks.register("provider:error", note)
        async with layer.turn():
            await session.execute("Hello")
        assert session.status.status == "completed"

    assert (first.call_count, second.call_count, errors) == (0, 0, [])


async def test_the_session_goes_on_when_the_limit_is_raised() -> None:
    events, provider = Recorded(), Metered([answer("Here I am")])
    layer = BudgetLayer(TreeBudget(Limits(total_tokens=10)), events.emit)
    async with layered(plan(), [layer], {"metered": provider}) as session:
        for _ in range(2):
            async with layer.turn():
                await session.execute("Hello")
        assert len(events.of(BUDGET_EXHAUSTED)) == 2  # one for each turn that it ended

        layer.budget.limits = Limits(total_tokens=10_000)
        async with layer.turn():
            assert await session.execute("Hello") == "Here I am"

    assert layer.exhausted is None
    assert layer.turn_used.tokens.total == 50


async def test_money_is_held_back_and_counted_as_the_provider_says() -> None:
    provider = Metered(on_and_on(), cost="0.40")
    layer = BudgetLayer(TreeBudget(Limits(cost_usd=Decimal(1))), Recorded().emit)
    async with layered(plan(), [layer], {"metered": provider}, echo()) as session, layer.turn():
        said = await session.execute("Go on")

    assert "the limit cost_usd = 1 of this session tree is reached: 0.8 used, and the next call may take 0.4" in said
    assert (provider.call_count, layer.used.cost_usd) == (2, Decimal("0.80"))
    assert layer.used.by_model["metered"].cost_usd == Decimal("0.80")


async def test_without_a_price_only_tokens_count_and_the_events_say_so() -> None:
    events, provider = Recorded(), Metered([*on_and_on()[:2], answer("done")])
    layer = BudgetLayer(TreeBudget(Limits(cost_usd=Decimal("0.01"), tool_calls=2)), events.emit)
    async with layered(plan(), [layer], {"metered": provider}, echo()) as session, layer.turn():
        assert await session.execute("Go on") == "done"

    assert (layer.used.cost_usd, layer.used.unpriced_tokens) == (None, 150)
    (warning,) = events.of(BUDGET_WARNING)
    assert warning == {"limit": "tool_calls", "used": 2, "allowed": 2, "unpriced_tokens": 100}


async def test_a_provider_that_reports_nothing_is_counted_by_estimate() -> None:
    response = ChatResponse(content=answer("x" * 4000).content, usage=None)
    layer = BudgetLayer(TreeBudget(), Recorded().emit)
    async with layered(plan(), [layer], {"silent": MockProvider([response])}) as session, layer.turn():
        await session.execute("y" * 4000)

    assert layer.used.tokens.input >= 1000
    assert layer.used.tokens.output >= 1000


async def test_a_provider_call_that_fails_gives_back_what_it_held() -> None:
    layer = BudgetLayer(TreeBudget(Limits(total_tokens=250)), Recorded().emit)
    async with layered(plan(), [layer], {"metered": Metered([ValueError("no"), answer("yes")])}) as session:
        with pytest.raises(ValueError, match="no"):
            async with layer.turn():
                await session.execute("Hello")
        async with layer.turn():
            assert await session.execute("Hello") == "yes"


async def test_no_turn_begins_when_none_is_left() -> None:
    events = Recorded()
    layer = BudgetLayer(TreeBudget(Limits(turns=1)), events.emit)
    async with layer.turn():
        pass

    with pytest.raises(BudgetExhaustedError, match="turns = 1"):
        async with layer.turn():
            pytest.fail("nothing may begin")

    assert [data["limit"] for data in events.of(BUDGET_EXHAUSTED)] == ["turns"]
    assert layer.used.turns == 1


async def test_a_provider_that_streams_by_itself_passes_through_the_layers_too() -> None:
    class Streaming(Metered):
        def stream(self, request: ChatRequest, **options: Any) -> Any:
            pytest.fail("nothing may pass the layers by")

    layer = BudgetLayer(TreeBudget(), Recorded().emit)
    provider = Streaming([answer("hi")])
    async with layered(plan("loop-streaming"), [layer], {"metered": provider}) as session, layer.turn():
        assert await session.execute("Hello") == "hi"

    assert layer.used.tokens.total == 50


async def test_a_loop_that_asks_on_and_on_is_ended() -> None:
    class Stubborn:
        async def execute(self, prompt: str, providers: Any, **rest: Any) -> str:
            while True:
                await providers["metered"].complete(ChatRequest(messages=[]))

    layer = BudgetLayer(TreeBudget(Limits(total_tokens=10)), Recorded().emit)
    coordinator = MockCoordinator()
    orchestrator = LayeredOrchestrator(Stubborn(), coordinator, [layer], lambda name, _: name)
    with pytest.raises(BudgetExhaustedError):
        async with layer.turn():
            await orchestrator.execute("Hello", None, {"metered": Metered([])}, {}, coordinator.hooks)


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("children", [3, 50])
async def test_children_stop_together_before_the_limit_and_nothing_is_left_half_done(loop: str, children: int) -> None:
    budget = TreeBudget(Limits(total_tokens=children * 300))
    begun = finished = 0

    async def work(_: Any) -> ToolResult:
        nonlocal begun, finished
        begun += 1
        await asyncio.sleep(0)
        finished += 1
        return ToolResult(output="done")

    async def child(number: int) -> tuple[list[dict[str, Any]], int]:
        events, provider = Recorded(), Metered(on_and_on(), used=100)
        layer = BudgetLayer(budget, events.emit, agent=f"agent-{number % 3}")
        async with layered(plan(loop), [layer], {"metered": provider}, FunctionTool("echo", work)) as session:
            async with layer.turn():
                await session.execute("Go on")
            assert len(events.of(BUDGET_EXHAUSTED)) == 1
            return await messages_of(session), len(events.of(BUDGET_WARNING))

    ended = await asyncio.gather(*(child(number) for number in range(children)))

    assert budget.used.tokens.total <= children * 300
    assert begun == finished == budget.used.tool_calls
    for messages, _ in ended:
        assert_well_formed(messages)
    assert sum(warnings for _, warnings in ended) <= 1
    assert sum(part.tokens.total for part in budget.used.by_agent.values()) == budget.used.tokens.total
