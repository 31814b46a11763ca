"""How delegations end, what is told of them, and how many run at once."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_module_tool_task import TaskTool

from amplifier_core.testing import EventRecorder, wait_for


def identity(desk: Any) -> dict[str, Any]:
    return {
        "agent": "bug-hunter",
        "sub_session_id": desk.application.call["sub_session_id"],
        "parent_session_id": "test-session",
    }


async def test_a_delegation_is_announced_before_the_call_and_completed_after_it(desk: Any) -> None:
    desk.application.may_end.clear()
    delegation = asyncio.create_task(desk.delegate())
    await desk.application.is_running.wait()
    before = list(desk.events)

    desk.application.may_end.set()
    await delegation

    assert before == ["task:agent_spawned"]
    assert desk.events == ["task:agent_spawned", "task:agent_completed"]
    assert desk.data("task:agent_spawned") == identity(desk)
    assert desk.data("task:agent_completed") == {**identity(desk), "success": True}


async def test_a_spawn_that_raises_is_a_failed_result_with_spawned_completed_and_tool_error(
    desk: Any, problem_of: Any
) -> None:
    desk.application.answer = RuntimeError("boom")

    result = await desk.delegate()

    assert problem_of(result) == ("delegation_failed", "Delegation failed: boom")
    assert result.error["type"] == "RuntimeError"
    assert desk.events == ["task:agent_spawned", "task:agent_completed", "tool:error"]
    assert desk.data("task:agent_completed") == {**identity(desk), "success": False, "error": "boom"}
    assert desk.data("tool:error") == {"tool": "task", **identity(desk), "error": "boom"}


async def test_operators_find_the_error_of_a_failed_delegation_in_the_log(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    desk.application.answer = RuntimeError("boom")

    await desk.delegate("a secret task")

    (record,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert record.exc_info is not None
    assert record.exc_info[1] is desk.application.answer
    assert "a secret task" not in caplog.text


async def test_an_error_without_words_is_told_by_its_type(desk: Any, problem_of: Any) -> None:
    desk.application.answer = KeyError()

    assert problem_of(await desk.delegate()) == ("delegation_failed", "Delegation failed: KeyError")


async def test_when_the_time_is_over_the_child_is_cancelled(make_desk: Any, problem_of: Any) -> None:
    desk = make_desk(timeout=0.01)
    desk.application.may_end.clear()

    result = await desk.delegate()

    assert problem_of(result)[0] == "DELEGATION_TIMEOUT"
    assert result.error["session_id"] == desk.application.call["sub_session_id"]
    assert result.error["agent"] == "bug-hunter"
    assert desk.application.was_cancelled
    assert desk.events == ["task:agent_spawned", "task:agent_timeout", "task:agent_completed", "tool:error"]
    assert desk.data("task:agent_timeout") == {**identity(desk), "timeout": 0.01}
    assert desk.data("task:agent_completed")["success"] is False


async def test_a_child_that_fails_while_it_is_being_cancelled_has_timed_out_all_the_same(make_desk: Any) -> None:
    async def spawn(**_: Any) -> Any:
        try:
            await asyncio.Event().wait()
        finally:
            raise OSError("cleanup failed")

    desk = make_desk(timeout=0.01)
    desk.serve(spawn)

    assert (await desk.delegate()).error["code"] == "DELEGATION_TIMEOUT"


async def test_a_time_out_of_the_childs_own_is_a_failure(make_desk: Any, problem_of: Any) -> None:
    desk = make_desk(timeout=60)
    desk.application.answer = TimeoutError("the model is slow")

    assert problem_of(await desk.delegate()) == ("delegation_failed", "Delegation failed: the model is slow")
    assert "task:agent_timeout" not in desk.events


async def test_a_resumed_session_can_time_out_too(make_desk: Any) -> None:
    desk = make_desk(timeout=0.01)
    desk.resumption.may_end.clear()

    result = await desk.resume("child-7")

    assert (result.error["code"], result.error["session_id"]) == ("DELEGATION_TIMEOUT", "child-7")
    assert desk.data("task:agent_timeout") == {
        "sub_session_id": "child-7",
        "parent_session_id": "test-session",
        "timeout": 0.01,
    }


async def test_a_cancellation_reaches_the_child_and_propagates_after_its_event(desk: Any) -> None:
    desk.application.may_end.clear()
    delegation = asyncio.create_task(desk.delegate())
    await desk.application.is_running.wait()

    delegation.cancel()
    with pytest.raises(asyncio.CancelledError):
        await delegation

    assert desk.application.was_cancelled
    assert desk.events == ["task:agent_spawned", "task:agent_cancelled", "task:agent_completed"]
    assert desk.data("task:agent_cancelled") == identity(desk)
    assert desk.data("task:agent_completed")["success"] is False


async def test_a_child_that_is_cancelled_from_within_cancels_the_call(desk: Any) -> None:
    desk.application.answer = asyncio.CancelledError()

    with pytest.raises(asyncio.CancelledError):
        await desk.delegate()

    assert desk.events == ["task:agent_spawned", "task:agent_cancelled", "task:agent_completed"]


async def test_a_second_cancellation_does_not_lose_the_last_events(desk: Any) -> None:
    is_told, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(event: str, data: Any) -> None:
        is_told.set()
        await may_go_on.wait()

    desk.coordinator.hooks.register("task:agent_cancelled", slow, name="slow")
    desk.application.may_end.clear()
    delegation = asyncio.create_task(desk.delegate())
    await desk.application.is_running.wait()

    delegation.cancel()
    await is_told.wait()
    delegation.cancel()
    await asyncio.wait([delegation])
    may_go_on.set()

    assert delegation.cancelled()
    assert await wait_for(lambda: "task:agent_completed" in desk.events)
    assert desk.events.count("task:agent_completed") == 1


async def test_a_cancellation_during_the_last_event_does_not_repeat_it(desk: Any) -> None:
    is_told, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(event: str, data: Any) -> None:
        is_told.set()
        await may_go_on.wait()

    desk.coordinator.hooks.register("task:agent_completed", slow, name="slow", priority=-1)
    delegation = asyncio.create_task(desk.delegate())
    await is_told.wait()

    delegation.cancel()
    await asyncio.wait([delegation])
    may_go_on.set()

    assert await wait_for(lambda: len(desk.events) == 2)
    assert desk.data("task:agent_completed")["success"] is True


async def test_five_parallel_delegations_overlap_in_time(desk: Any) -> None:
    desk.application.may_end.clear()
    delegations = asyncio.gather(*(desk.delegate(f"part {number}") for number in range(5)))

    assert await wait_for(lambda: desk.application.running == 5)
    desk.application.may_end.set()

    assert [result.success for result in await delegations] == [True] * 5
    assert desk.events.count("task:agent_completed") == 5


async def test_more_than_may_run_at_once_wait_for_their_turn(make_desk: Any) -> None:
    desk = make_desk(max_concurrent=2)
    desk.coordinator.register_capability("session.resume", desk.application)
    desk.application.may_end.clear()
    delegations = asyncio.gather(desk.delegate(), desk.resume(), desk.delegate(), desk.delegate())

    assert await wait_for(lambda: desk.application.running == 2)
    announced = len(desk.events)
    desk.application.may_end.set()
    results = await delegations

    assert announced == 2
    assert all(result.success for result in results)
    assert (desk.application.most_running, len(desk.application.calls)) == (2, 4)


async def test_waiting_for_a_turn_is_not_part_of_the_time(make_desk: Any) -> None:
    desk = make_desk(max_concurrent=1, timeout=0.05)
    desk.application.may_end.clear()

    first, second = await asyncio.gather(desk.delegate(), desk.delegate())

    assert (first.error["code"], second.error["code"]) == ("DELEGATION_TIMEOUT", "DELEGATION_TIMEOUT")
    assert len(desk.application.calls) == 2


async def test_one_that_is_cancelled_while_it_waits_was_never_started_and_frees_nothing(make_desk: Any) -> None:
    desk = make_desk(max_concurrent=1)
    desk.application.may_end.clear()
    running = asyncio.create_task(desk.delegate())
    await desk.application.is_running.wait()
    waiting = asyncio.create_task(desk.delegate())
    await asyncio.sleep(0)

    waiting.cancel()
    await asyncio.wait([waiting])
    desk.application.may_end.set()

    assert (await running).success
    assert waiting.cancelled()
    assert desk.events == ["task:agent_spawned", "task:agent_completed"]
    assert (await desk.delegate()).success


async def test_events_go_to_the_mounted_hooks_first_and_else_to_the_coordinators_own() -> None:
    async def spawn(**_: Any) -> dict[str, Any]:
        return {"output": "done"}

    mounted, own = EventRecorder(), EventRecorder()
    parts = {"config": {"agents": {"a": {}}}, "get_capability": {"session.spawn": spawn}.get, "session_id": "s"}
    both = SimpleNamespace(**parts, hooks=own, get={"hooks": mounted}.get)
    only_own = SimpleNamespace(**parts, hooks=own)

    for coordinator in (both, only_own):
        assert (await TaskTool(coordinator, {}).execute({"agent": "a", "instruction": "x"})).success

    assert [len(recorder.events) for recorder in (mounted, own)] == [2, 2]


async def test_an_event_sink_that_fails_changes_nothing(desk: Any) -> None:
    async def emit(event: str, data: Any) -> None:
        raise RuntimeError("broken")

    desk.coordinator.hooks = SimpleNamespace(emit=emit)

    assert (await desk.delegate()).output["response"] == "found it"
