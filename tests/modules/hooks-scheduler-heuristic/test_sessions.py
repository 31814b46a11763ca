"""The scheduler in real sessions: it changes which tool runs."""

from typing import Any

import pytest


async def test_with_loop_events_the_tools_that_run_are_those_of_the_scheduler(start_session: Any) -> None:
    session = await start_session(strategy="round-robin", override_enabled=True)

    ran = await session.call("c", "c", "c", "c")

    assert ran == ["a", "b", "c", "a"]
    selected = [data for event, data in session.recorder.events if event == "tool:selected"]
    assert [(data["source"], data["original_tool"]) for data in selected] == [
        ("scheduler", "c"),
        ("scheduler", "c"),
        ("llm", None),
        ("scheduler", "c"),
    ]


async def test_the_answers_stay_with_the_calls_of_the_model(start_session: Any) -> None:
    session = await start_session(override_enabled=True)

    await session.call("c")

    messages = await session.session.coordinator.get("context").get_messages()
    assert messages[1]["tool_calls"][0]["tool"] == "c"
    assert (messages[2]["tool_call_id"], messages[2]["content"]) == ("c0", "a ran")


async def test_without_override_the_model_has_its_way(start_session: Any) -> None:
    session = await start_session(strategy="round-robin")

    assert await session.call("c", "b") == ["c", "b"]


async def test_a_tool_that_is_not_there_is_denied(start_session: Any) -> None:
    session = await start_session()

    assert await session.call("x", "b") == ["b"]
    messages = await session.session.coordinator.get("context").get_messages()
    assert messages[2]["content"] == "Error: Tool x not in available tools"


async def test_an_overridden_event_still_carries_its_session(start_session: Any) -> None:
    session = await start_session(override_enabled=True)

    await session.call("c")

    data = next(data for event, data in session.recorder.events if event == "tool:selecting")
    assert data["session_id"] == session.session.session_id
    assert (data["tool"], data["tool_name"], data["tool_call_id"]) == ("a", "a", "c0")


async def test_a_seeded_random_choice_is_the_same_in_every_run(start_session: Any) -> None:
    runs = [
        await (await start_session(strategy="random", seed=7, override_enabled=True)).call(*"cccccccc")
        for _ in range(2)
    ]

    assert runs[0] == runs[1]
    assert len(set(runs[0])) > 1


async def test_decisions_that_the_loop_asks_for_are_taken_by_the_strategy(start_session: Any) -> None:
    session = await start_session(loop={"decision_events": True}, strategy="round-robin")

    assert await session.call("c", "c", "c") == ["a", "b", "c"]


@pytest.mark.parametrize("strategy", ["clever", 7])
async def test_an_unknown_strategy_mounts_and_is_the_first_one(start_session: Any, strategy: Any) -> None:
    session = await start_session(strategy=strategy, override_enabled=True)

    assert await session.call("c", "b") == ["a", "a"]


async def test_ending_the_session_removes_all_handlers(start_session: Any) -> None:
    session = await start_session(override_enabled=True)
    hooks = session.session.coordinator.hooks
    assert "heuristic:tool_selecting" in hooks.list_handlers("tool:selecting")["tool:selecting"]

    await session.session.cleanup()

    names = [name for found in hooks.list_handlers().values() for name in found]
    assert [name for name in names if name.startswith("heuristic:")] == []
