"""Workers that end, block or leak: only what runs in them suffers, and nothing stored is lost."""

import os
import signal
from pathlib import Path

import pytest
from worker_bench import PROMPT, WorkerBench, faulty, until

from amplifierd.live_sessions import TurnRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_killed_worker_fails_its_turn_and_the_session_goes_on_in_another(bench: WorkerBench) -> None:
    session_id, folder = await bench.session(faulty("start"))
    submitted = await bench.live.submit(session_id, TurnRequest(PROMPT))
    await until((folder / "child").exists)
    worker = bench.worker_of(session_id)

    os.kill(worker, signal.SIGKILL)
    result = await bench.result(submitted)

    assert (result["status"], result["error"]["code"], result["turn"]) == ("failed", "aborted", 1)
    assert bench.told(session_id)[-1] == "execution:done"
    assert "session:repaired" in bench.told(session_id)
    assert not _lives(folder)
    tool = next(one for one in bench.home.sessions.messages(session_id) if one["role"] == "tool")
    assert tool["metadata"]["repaired"] == "unknown"
    assert (await bench.run(session_id))["status"] == "completed"
    assert bench.worker_of(session_id) != worker


def _lives(folder: Path) -> bool:
    try:
        os.kill(int((folder / "child").read_text()), 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_module_that_ends_the_process_ends_its_turn_only(bench: WorkerBench) -> None:
    session_id, _ = await bench.session(faulty("exit"))

    assert (await bench.run(session_id, PROMPT))["status"] == "failed"
    assert (await bench.run(session_id))["status"] == "completed"


async def test_a_prompt_that_waited_when_the_worker_ended_runs_afterwards(bench: WorkerBench) -> None:
    session_id, folder = await bench.session([*faulty("wait"), "Again."])
    first = await bench.live.submit(session_id, TurnRequest(PROMPT))
    second = await bench.live.submit(session_id, TurnRequest("two", queue=True))
    await until((folder / "begun").exists)

    os.kill(bench.worker_of(session_id), signal.SIGKILL)

    assert (await bench.result(first))["status"] == "failed"
    assert (await bench.result(second))["turn"] == 2
    prompts = [one["content"] for one in bench.home.sessions.messages(session_id) if one["role"] == "user"]
    assert prompts == [PROMPT, "two"]
