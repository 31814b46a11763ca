"""One budget for a whole tree, asked by many at once."""

import asyncio
from decimal import Decimal

import pytest

import amplifier_core
from amplifierd.exceptions import BudgetExhaustedError
from amplifierd.limits import Limits
from amplifierd.sessions.layers.tree_budget import TreeBudget
from amplifierd.sessions.layers.usage import Usage


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def of_tokens(total: int, cost: str | None = None) -> Usage:
    cost_usd = None if cost is None else Decimal(cost)
    used = amplifier_core.Usage(input_tokens=total, output_tokens=0, total_tokens=total, cost_usd=cost_usd)
    return Usage.of_call(used, "model")


async def test_a_call_that_could_exceed_the_limit_is_refused_with_the_figures() -> None:
    budget = TreeBudget(Limits(total_tokens=1000), of_tokens(700))

    with pytest.raises(
        BudgetExhaustedError, match=r"total_tokens = 1000 .* 700 used, and the next call may take 301"
    ) as caught:
        await budget.reserve(301)

    assert (caught.value.limit, caught.value.used, caught.value.allowed) == ("total_tokens", 700, 1000)
    assert caught.value.unpriced_tokens == 700
    await budget.reserve(300)


async def test_what_was_used_replaces_the_reservation() -> None:
    budget = TreeBudget(Limits(total_tokens=1000))
    reservation = await budget.reserve(900)

    budget.settle(reservation, of_tokens(100))

    assert budget.used.tokens.total == 100
    await budget.reserve(900)


async def test_a_call_that_failed_gives_its_reservation_back() -> None:
    budget = TreeBudget(Limits(total_tokens=1000))
    budget.release(await budget.reserve(1000))

    await budget.reserve(1000)


async def test_a_call_waits_where_only_the_reservations_of_others_stand_in_the_way() -> None:
    budget = TreeBudget(Limits(total_tokens=1000))
    first = await budget.reserve(600)
    second = asyncio.create_task(budget.reserve(600))
    await asyncio.sleep(0)
    assert not second.done()

    budget.settle(first, of_tokens(100))

    assert await second


async def test_a_call_that_waits_is_refused_when_the_others_used_too_much() -> None:
    budget = TreeBudget(Limits(total_tokens=1000))
    first = await budget.reserve(600)
    second = asyncio.create_task(budget.reserve(600))
    await asyncio.sleep(0)

    budget.settle(first, of_tokens(500))

    with pytest.raises(BudgetExhaustedError):
        await second


async def test_a_call_that_waits_goes_on_when_the_limit_is_raised() -> None:
    budget = TreeBudget(Limits(total_tokens=1000))
    await budget.reserve(600)
    second = asyncio.create_task(budget.reserve(600))
    await asyncio.sleep(0)

    budget.limits = Limits(total_tokens=2000)

    assert await second


async def test_a_call_that_is_cancelled_while_it_waits_leaves_nothing_behind() -> None:
    budget = TreeBudget(Limits(total_tokens=1000))
    first = await budget.reserve(600)
    second = asyncio.create_task(budget.reserve(600))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second

    budget.release(first)

    await budget.reserve(1000)


async def test_fifty_at_once_never_get_more_together_than_there_is() -> None:
    budget = TreeBudget(Limits(total_tokens=1000, cost_usd=Decimal(1)))
    running = most = 0

    async def child(number: int) -> bool:
        nonlocal running, most
        try:
            reservation = await budget.reserve(100, Decimal("0.10"))
        except BudgetExhaustedError:
            return False
        running += 1
        most = max(most, running)
        for _ in range(number % 5):
            await asyncio.sleep(0)
        running -= 1
        budget.settle(reservation, of_tokens(100, "0.10"), f"agent {number}")
        return True

    made = await asyncio.gather(*(child(number) for number in range(50)))

    assert sum(made) == 10
    assert most <= 10
    assert (budget.used.tokens.total, budget.used.cost_usd) == (1000, Decimal("1.00"))
    assert sum(part.tokens.total for part in budget.used.by_agent.values()) == 1000


async def test_an_unknown_price_holds_back_tokens_only() -> None:
    budget = TreeBudget(Limits(cost_usd=Decimal(1)))

    budget.settle(await budget.reserve(10**9, None), of_tokens(10**9))

    assert (budget.used.cost_usd, budget.used.unpriced_tokens) == (None, 10**9)
    with pytest.raises(BudgetExhaustedError) as caught:
        await budget.reserve(1, Decimal(2))
    assert caught.value.unpriced_tokens == 10**9


def test_tool_calls_are_counted_before_they_begin() -> None:
    budget = TreeBudget(Limits(tool_calls=2))
    budget.count_tool_call()
    budget.count_tool_call("helper")

    with pytest.raises(BudgetExhaustedError, match=r"tool_calls = 2 .* 2 used"):
        budget.count_tool_call()
    assert (budget.used.tool_calls, budget.used.by_agent["helper"].tool_calls) == (2, 1)


def test_turns_of_the_whole_tree_count() -> None:
    budget = TreeBudget(Limits(turns=2))
    with budget.begin_turn(), budget.begin_turn("helper"):
        pass

    with pytest.raises(BudgetExhaustedError, match="turns = 2"):
        budget.begin_turn()


async def test_time_runs_while_a_turn_runs_and_once_for_turns_beside_each_other() -> None:
    clock = Clock()
    budget = TreeBudget(Limits(seconds=10), clock=clock)
    clock.now += 100
    with budget.begin_turn():
        clock.now += 3
        with budget.begin_turn():
            clock.now += 4
        assert budget.used.seconds == 7
    clock.now += 100
    assert budget.used.seconds == 7

    with budget.begin_turn():
        clock.now += 3
        with pytest.raises(BudgetExhaustedError, match="seconds = 10"):
            await budget.reserve(1)
        with pytest.raises(BudgetExhaustedError, match="seconds = 10"):
            budget.count_tool_call()


def test_each_limit_warns_once_at_four_fifths() -> None:
    budget = TreeBudget(Limits(tool_calls=10, turns=100))
    seen = []
    for _ in range(10):
        budget.count_tool_call()
        seen.append([state.to_json() for state in budget.warnings()])

    warned = {"limit": "tool_calls", "used": 8, "allowed": 10, "unpriced_tokens": 0}
    assert seen == [[]] * 7 + [[warned]] + [[]] * 2


def test_a_raised_limit_warns_again_and_a_resumed_tree_does_not() -> None:
    budget = TreeBudget(Limits(tool_calls=5), Usage(tool_calls=4))
    assert budget.warnings() == []

    budget.limits = Limits(tool_calls=10)
    for _ in range(4):
        budget.count_tool_call()

    assert [state.used for state in budget.warnings()] == [8]


async def test_without_limits_it_only_counts() -> None:
    budget = TreeBudget()
    for _ in range(3):
        budget.settle(await budget.reserve(10**12), of_tokens(10))
        budget.count_tool_call()

    assert (budget.used.tokens.total, budget.used.tool_calls) == (30, 3)
    assert budget.warnings() == []
