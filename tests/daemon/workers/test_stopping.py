"""Stopping the daemon's sessions: gently, completely, and so that they go on afterwards."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from worker_bench import FAULTS, PROMPT, WorkerBench, faulty, until

from amplifierd.exceptions import NotReadyError, SessionStateError
from amplifierd.workers.live_sessions import TurnRequest
from amplifierd.workers.worker_pool import WorkerPool
from amplifierd.workers.worker_process import WorkerProcess
from amplifierd.workers.worker_start import describe_home


@pytest_asyncio.fixture
async def own(tmp_path: Path) -> AsyncIterator[WorkerBench]:
    async with WorkerBench(tmp_path) as bench:
        yield bench


async def test_draining_takes_no_turns_and_waits_for_those_that_run(own: WorkerBench) -> None:
    session_id, folder = await own.session(faulty("wait"))
    submitted = await own.live.submit(session_id, TurnRequest(PROMPT))
    await until((folder / "begun").exists)

    async with own.meanwhile(own.live.drain()) as draining:
        await until(lambda: own.live.is_draining)
        with pytest.raises(NotReadyError):
            await own.live.submit(session_id, TurnRequest("another"))
        assert not draining.done()
        (folder / "go").touch()

    assert submitted.result.result()["status"] == "completed"


async def test_stopping_ends_turns_turns_prompts_away_and_lets_every_session_go(own: WorkerBench) -> None:
    session_id, folder = await own.session(faulty("wait"), tools=[{**FAULTS, "config": {"lingers": True}}])
    running = await own.live.submit(session_id, TurnRequest(PROMPT))
    waiting = await own.live.submit(session_id, TurnRequest("later", queue=True))
    await until((folder / "begun").exists)

    async with own.meanwhile(own.live.stop(grace_s=0.1)):
        await until((folder / "ending").exists)
        with pytest.raises(NotReadyError):
            await own.live.queued(session_id)
        (folder / "end").touch()

    assert (await own.result(running))["status"] == "cancelled"
    with pytest.raises(SessionStateError):
        await own.result(waiting)
    assert own.told(session_id)[-2:] == ["execution:done", "session:end"]
    assert own.live.workers() == []
    assert own.live.states() == []
    assert own.home.sessions.holder(session_id) is None
    with pytest.raises(NotReadyError):
        await own.live.submit(session_id, TurnRequest("too late"))


async def test_a_session_that_is_being_loaded_when_the_stop_begins_runs_no_turn(own: WorkerBench) -> None:
    session_id, folder = await own.session(tools=[{**FAULTS, "config": {"mounts_late": True}}])
    submitting = asyncio.create_task(own.live.submit(session_id, TurnRequest("Hello")))
    await until((folder / "mounting").exists)

    async with own.meanwhile(own.live.stop(grace_s=5)):
        await asyncio.sleep(0.1)
        (folder / "mounted").touch()
        with pytest.raises(NotReadyError):
            await submitting

    assert own.live.workers() == []
    assert own.home.sessions.holder(session_id) is None
    assert not own.home.sessions.messages(session_id)


async def test_with_other_settings_workers_end_after_their_turns_and_sessions_go_on_in_new_ones(
    own: WorkerBench,
) -> None:
    session_id, folder = await own.session(faulty("wait"))
    submitted = await own.live.submit(session_id, TurnRequest(PROMPT))
    await until((folder / "begun").exists)
    worker = own.worker_of(session_id)

    sessions = own.home.settings.sessions.model_copy(update={"turn_timeout_seconds": 0.001})
    changed = own.home.settings.model_copy(update={"sessions": sessions})
    home = own.home.with_settings(changed, share_sessions=True)
    own.live.use(home.sessions, home.resolver)
    (folder / "go").touch()

    assert (await own.result(submitted))["status"] == "completed"
    await until(lambda: worker not in [one.pid for one in own.live.workers()])
    with pytest.raises(TimeoutError):
        await own.run(session_id)


async def test_a_worker_that_is_just_being_started_is_abandoned_with_the_others(own: WorkerBench) -> None:
    runtime, over = own.home.sessions.runtime, list[WorkerProcess]()
    is_asked, may_open = asyncio.Event(), asyncio.Event()

    async def describe() -> dict[str, Any]:
        told = await describe_home(runtime, None)
        is_asked.set()
        await may_open.wait()
        return told

    pool = WorkerPool(own.home.settings, describe, dict, over.append, patience_s=20)
    starting = asyncio.create_task(pool.take("a plan"))
    await is_asked.wait()
    await pool.abandon()
    may_open.set()

    with pytest.raises(NotReadyError, match="fenced"):
        await starting
    assert pool.workers == ()
    assert [worker.is_over for worker in over] == [True]
    assert (await pool.take("a plan")).is_usable
    await pool.stop(0)
