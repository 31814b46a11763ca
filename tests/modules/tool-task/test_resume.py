"""Going on with the session of an earlier delegation."""

from typing import Any

import pytest


async def test_a_session_is_resumed_with_its_id_and_the_instruction_only(desk: Any) -> None:
    result = await desk.tool.execute(
        {"session_id": "child-1", "instruction": "Go on", "agent": "nobody", "inherit_context": "all"}
    )

    assert desk.resumption.call == {"sub_session_id": "child-1", "instruction": "Go on"}
    assert desk.application.calls == []
    assert result.output == {"response": "found it", "session_id": "child-1"}


async def test_the_depth_of_a_session_does_not_keep_it_from_resuming(make_desk: Any) -> None:
    desk = make_desk(max_recursion_depth=0)

    assert (await desk.resume()).success


@pytest.mark.parametrize("session_id", ["a", "A" * 256, "5f0c-0123456789abcdef_bug-hunter", "a.b:c_d-e"])
async def test_ids_of_sessions_are_accepted(desk: Any, session_id: str) -> None:
    assert (await desk.resume(session_id)).success


@pytest.mark.parametrize(
    "session_id",
    ["../x", "a/b", "a..b", ".hidden", "-x", "a b", "a\n", " a", "a\0", "ä", "A" * 257],
    ids=lambda session_id: ascii(session_id[:10]),
)
async def test_what_cannot_be_the_id_of_a_session_is_invalid_input(desk: Any, problem_of: Any, session_id: str) -> None:
    assert problem_of(await desk.resume(session_id))[0] == "invalid_input"
    assert (desk.resumption.calls, desk.events) == ([], [])


@pytest.mark.parametrize("session_id", ["", "  "])
async def test_a_blank_session_id_is_none(desk: Any, session_id: str) -> None:
    await desk.delegate(session_id=session_id)

    assert len(desk.application.calls) == 1


async def test_without_the_capability_it_is_named(desk: Any, problem_of: Any) -> None:
    desk.serve(None, "session.resume")

    code, message = problem_of(await desk.resume())

    assert code == "capability_missing"
    assert "session.resume" in message
    assert desk.events == []


async def test_resuming_is_announced_and_completed(desk: Any) -> None:
    await desk.resume()

    assert desk.events == ["task:agent_resumed", "task:agent_completed"]
    assert desk.data("task:agent_resumed") == {"session_id": "child-1", "parent_session_id": "test-session"}
    assert desk.data("task:agent_completed") == {
        "sub_session_id": "child-1",
        "parent_session_id": "test-session",
        "success": True,
    }


async def test_a_session_that_is_not_there_is_not_found(desk: Any, problem_of: Any) -> None:
    desk.resumption.answer = FileNotFoundError("metadata.json")

    code, message = problem_of(await desk.resume())

    assert code == "not_found"
    assert message.startswith("Session 'child-1' not found")
    assert desk.data("task:agent_completed")["success"] is False


async def test_any_other_failure_says_what_it_was(desk: Any, problem_of: Any) -> None:
    desk.resumption.answer = RuntimeError("the store is broken")

    result = await desk.resume()

    assert problem_of(result) == ("delegation_failed", "Resume failed: the store is broken")
    assert result.error["type"] == "RuntimeError"
    assert desk.events == ["task:agent_resumed", "task:agent_completed", "tool:error"]
    assert desk.data("tool:error") == {
        "tool": "task",
        "session_id": "child-1",
        "parent_session_id": "test-session",
        "error": "the store is broken",
    }


async def test_an_answer_without_output_is_a_failure(desk: Any, problem_of: Any) -> None:
    desk.resumption.answer = {"session_id": "child-1"}

    assert problem_of(await desk.resume())[1].startswith("Resume failed: ")
