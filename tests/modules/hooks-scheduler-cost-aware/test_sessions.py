"""The scheduler in real sessions: it changes which tools run, and how many."""

from typing import Any

import pytest


async def test_a_second_call_beyond_the_budget_is_denied(start_session: Any) -> None:
    session = await start_session(max_cost=3, tool_costs={"bash": 2})

    ran = await session.call("bash", "bash", tools={"bash": []})

    assert ran == ["bash"]
    assert await session.results() == ["bash ran", "Error: Would exceed cost budget (current: 2.0, limit: 3.0)"]
    assert session.announced("scheduler:budget_exceeded") == [
        {"tool_name": "bash", "session_cost": 2.0, "max_cost": 3.0}
    ]


async def test_a_second_call_beyond_the_budget_is_replaced_by_a_fitting_cheaper_tool(start_session: Any) -> None:
    session = await start_session(max_cost=3, tool_costs={"bash": 2, "grep": 1, "ls": 0.5})

    ran = await session.call("bash", "bash", tools={"bash": [], "grep": [], "ls": []})

    assert ran == ["bash", "ls"]
    assert session.session_cost == 2.5


async def test_a_cheaper_tool_that_does_not_take_the_arguments_is_no_alternative(start_session: Any) -> None:
    session = await start_session(max_cost=3, tool_costs={"bash": 2, "grep": 1, "ls": 0.5})

    ran = await session.call("bash", "bash", tools={"bash": ["command"], "grep": ["command"], "ls": ["path"]})

    assert ran == ["bash", "grep"]
    assert session.session_cost == 3.0


async def test_after_bash_ran_the_session_cost_is_its_configured_cost_and_not_the_default(start_session: Any) -> None:
    session = await start_session(tool_costs={"bash": 2.5}, default_tool_cost=7)

    await session.call("bash", tools={"bash": []})

    assert session.session_cost == 2.5


async def test_a_tool_is_charged_at_the_price_of_what_ran(start_session: Any) -> None:
    session = await start_session(max_cost=1, tool_costs={"search": 5, "lookup": 0.25})

    ran = await session.call("search", "search", tools={"search": [], "lookup": []})

    assert ran == ["lookup", "lookup"]
    assert session.session_cost == 0.5


async def test_the_threshold_is_announced_exactly_once(start_session: Any) -> None:
    session = await start_session(budget_limit=10.0, alert_threshold=8.0, tool_costs={"bash": 4})

    await session.call("bash", "bash", "bash", tools={"bash": []})

    assert session.announced("scheduler:cost_alert") == [
        {"session_cost": 8.0, "alert_threshold": 8.0, "max_cost": 10.0}
    ]


async def test_decisions_that_the_loop_asks_for_go_to_the_best_bargain(start_session: Any) -> None:
    session = await start_session(
        loop_config={"decision_events": True},
        tool_costs={"search": 5, "lookup": 1},
        tool_latencies={"search": 1, "lookup": 2},
    )

    assert await session.call("search", tools={"search": [], "lookup": []}) == ["lookup"]


@pytest.mark.parametrize("loop", ["loop-basic", "loop-streaming"])
async def test_other_loops_are_held_to_the_budget_at_tool_pre(start_session: Any, loop: str) -> None:
    session = await start_session(loop, max_cost=3, tool_costs={"bash": 2}, enforce_tool_pre=True)

    ran = await session.call("bash", "bash", tools={"bash": []})

    assert (ran, session.session_cost) == (["bash"], 2.0)
    assert "Would exceed cost budget" in (await session.results())[1]


async def test_with_both_a_call_is_charged_once(start_session: Any) -> None:
    session = await start_session(max_cost=3, tool_costs={"bash": 2}, enforce_tool_pre=True)

    assert await session.call("bash", tools={"bash": []}) == ["bash"]
    assert session.session_cost == 2.0


async def test_two_sessions_pay_for_themselves(start_session: Any) -> None:
    one, other = await start_session(tool_costs={"bash": 2}), await start_session(tool_costs={"bash": 3})

    await one.call("bash", "bash", tools={"bash": []})
    await other.call("bash", tools={"bash": []})

    assert (one.session_cost, other.session_cost) == (4.0, 3.0)


async def test_ending_the_session_resets_the_cost_and_removes_all_handlers(start_session: Any) -> None:
    session = await start_session()
    await session.call("bash", tools={"bash": []})

    await session.session.cleanup()

    names = [name for found in session.coordinator.hooks.list_handlers().values() for name in found]
    assert session.session_cost == 0.0
    assert [name for name in names if name.startswith("cost:")] == []
