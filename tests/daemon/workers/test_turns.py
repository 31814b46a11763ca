"""Sessions in worker processes: loaded, given turns, steered, stopped and asked, as in one process."""

import asyncio
import json
import os
from typing import Any

import pytest
from agents_at_work import call
from worker_bench import PROMPT, WorkerBench, faulty, until

from amplifierd.exceptions import (
    ApprovalNotFoundError,
    NothingToSteerError,
    SessionNotFoundError,
)
from amplifierd.sessions.layers.client_turns import ClientTurn
from amplifierd.workers.live_sessions import TurnRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

ASKING = [{"module": "hooks-approval", "config": {"rules": [], "default_action": "deny"}}]


async def test_a_turn_runs_in_another_process_and_its_events_arrive_in_order(bench: WorkerBench) -> None:
    session_id, _ = await bench.session(
        [call("read_file", file_path="notes.md"), "Done."], tools=[{"module": "tool-filesystem"}]
    )

    result = await bench.run(session_id)

    assert (result["response"], result["status"], result["turn"]) == ("Done.", "completed", 1)
    assert bench.worker_of(session_id) != os.getpid()
    own = [one for one in bench.events if one.session_id == session_id]
    numbers = [one.cursor.seq for one in own if one.cursor is not None and not one.is_delta]
    assert numbers == list(range(1, len(numbers) + 1))
    told = bench.told(session_id)
    assert (told[0], told[1], told[-1]) == ("session:created", "user_message:saved", "execution:done")
    for event in own:
        envelope = json.loads(event.envelope)
        assert (envelope["event"], envelope["cursor"]) == (event.name, str(event.cursor))
        assert envelope["sequence"] == (None if event.is_delta or event.cursor is None else event.cursor.seq)
        assert b"\n" not in event.envelope


async def test_loading_is_idempotent_and_so_is_unloading(bench: WorkerBench) -> None:
    session_id, _ = await bench.session()

    first, second = await asyncio.gather(bench.live.load(session_id), bench.live.load(session_id))
    assert first == second
    assert bench.live.state(session_id) is not None
    await asyncio.gather(bench.live.unload(session_id), bench.live.unload(session_id))
    await bench.live.unload(session_id)

    assert bench.live.state(session_id) is None
    assert (await bench.run(session_id))["status"] == "completed"


async def test_what_is_not_there_is_the_library_s_error(bench: WorkerBench) -> None:
    with pytest.raises(SessionNotFoundError):
        await bench.live.load("nothing-of-this-name")


async def test_a_turn_is_cancelled_while_its_tool_runs(bench: WorkerBench) -> None:
    session_id, folder = await bench.session(faulty("wait"))
    submitted = await bench.live.submit(session_id, TurnRequest(PROMPT))
    await until((folder / "begun").exists)

    state = bench.live.state(session_id)
    assert state is not None
    assert state.activity == "executing"
    assert (await bench.live.cancellation(session_id))["running_tools"][0]["name"] == "fault"
    assert await bench.live.cancel(session_id, immediate=True) == {"state": "immediate", "running_tools": ["fault"]}

    assert (await bench.result(submitted))["status"] == "cancelled"
    assert (await bench.live.cancel(session_id))["state"] == "none"
    assert (await bench.run(session_id))["status"] == "completed"


async def test_steering_needs_a_running_turn(bench: WorkerBench) -> None:
    session_id, folder = await bench.session(faulty("wait"))
    with pytest.raises(NothingToSteerError):
        await bench.live.steer(session_id, "faster")
    submitted = await bench.live.submit(session_id, TurnRequest(PROMPT))
    await until((folder / "begun").exists)

    assert (await bench.live.steer(session_id, "faster"))["delivered"] is True
    (folder / "go").touch()
    await bench.result(submitted)
    assert "faster" in str(bench.home.sessions.messages(session_id))


async def test_a_question_waits_for_a_client(bench: WorkerBench) -> None:
    script = [call("write_file", file_path="new.txt", content="x"), "Done."]
    session_id, folder = await bench.session(script, tools=[{"module": "tool-filesystem"}], hooks=ASKING)
    submitted = await bench.live.submit(session_id, TurnRequest("write"))
    await until(lambda: (state := bench.live.state(session_id)) and state.pending_approvals)

    state = bench.live.state(session_id)
    assert state is not None
    assert state.activity == "waiting_approval"
    (question,) = await bench.live.approvals(session_id)
    assert question == state.pending_approvals[0]
    with pytest.raises(ApprovalNotFoundError):
        await _answer(bench, session_id, "no-such-request")
    assert (await _answer(bench, session_id, question["request_id"]))["decision"] == "allow"

    assert (await bench.result(submitted))["status"] == "completed"
    assert (folder / "new.txt").read_text() == "x"
    assert await bench.live.approvals(session_id) == []
    assert (await bench.live.approvals(session_id, finished=True))[0]["by"] == "tests"


async def _answer(bench: WorkerBench, session_id: str, request_id: str) -> dict[str, Any]:
    return await bench.live.resolve_approval(session_id, request_id, "allow", reason=None, remember=False, by="tests")


async def test_a_question_is_denied_where_nobody_could_answer(bench: WorkerBench) -> None:
    script = [call("write_file", file_path="new.txt", content="x"), "Done."]
    session_id, folder = await bench.session([*script, *script], tools=[{"module": "tool-filesystem"}], hooks=ASKING)
    await bench.live.load(session_id)

    assert (await bench.run(session_id, client=ClientTurn()))["tool_calls"][0]["status"] == "denied"
    assert not (folder / "new.txt").exists()

    await bench.live.submit(session_id, TurnRequest("Again"))
    await until(lambda: (state := bench.live.state(session_id)) and state.pending_approvals)
    await bench.live.cancel(session_id, immediate=True)
