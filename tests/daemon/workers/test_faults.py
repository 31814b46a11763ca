"""Workers that end, block or leak: only what runs in them suffers, and nothing stored is lost."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from worker_bench import MODULES, PROMPT, WorkerBench, faulty, is_alive, until

from amplifier_core.exceptions import ModuleLoadError
from amplifierd.exceptions import NotReadyError
from amplifierd.workers.live_sessions import TurnRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAEMON = Path(__file__).parents[2] / "stand_ins/worker_daemon.py"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def small(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WorkerBench]:
    """A home whose workers may have little memory, are soon given up, and end soon when there is nothing to do."""
    limits = {"memory_limit_mb": 200, "idle_minutes": 0.05}
    async with WorkerBench(tmp_path_factory.mktemp("small"), patience_s=3, workers=limits) as bench:
        yield bench


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
    assert not is_alive(folder / "child")
    tool = next(one for one in bench.home.sessions.messages(session_id) if one["role"] == "tool")
    assert tool["metadata"]["repaired"] == "unknown"
    assert (await bench.run(session_id))["status"] == "completed"
    assert bench.worker_of(session_id) != worker


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


async def test_a_prompt_that_comes_right_after_the_worker_s_end_loses_neither_turn(bench: WorkerBench) -> None:
    session_id, folder = await bench.session([*faulty("start"), "Again."])
    first = await bench.live.submit(session_id, TurnRequest(PROMPT))
    await until((folder / "child").exists)

    os.kill(bench.worker_of(session_id), signal.SIGKILL)
    await until(lambda: not is_alive(folder / "begun"))
    await asyncio.sleep(0.1)  # the daemon knows it too, and the child still has the worker's output
    second = await bench.live.submit(session_id, TurnRequest("two", queue=True))

    assert (await bench.result(first))["status"] == "failed"
    assert (await bench.result(second))["turn"] == 2


async def test_the_end_of_a_turn_is_told_when_its_session_cannot_be_brought_back(bench: WorkerBench) -> None:
    session_id, folder = await bench.session(faulty("wait"))
    submitted = await bench.live.submit(session_id, TurnRequest(PROMPT))
    queued = await bench.live.submit(session_id, TurnRequest("two", queue=True))
    await until((folder / "begun").exists)

    (bench.home.paths.sessions / session_id / "mount_plan.json").unlink()
    os.kill(bench.worker_of(session_id), signal.SIGKILL)

    for one in (submitted, queued):
        assert (await bench.result(one))["status"] == "failed"
        assert (bench.end_of(one)["status"], bench.end_of(one)["error"]["code"]) == ("failed", "aborted")


async def test_a_session_executes_from_the_moment_its_turn_is_taken(bench: WorkerBench) -> None:
    session_id, folder = await bench.session(faulty("block"))
    submitted = await bench.live.submit(session_id, TurnRequest(PROMPT))

    state = bench.live.state(session_id)
    (folder / "go").touch()

    assert state is not None
    assert state.activity == "executing"
    assert (await bench.result(submitted))["status"] == "completed"


async def test_a_turn_that_took_too_long_is_told_to_have_ended_once(bench: WorkerBench) -> None:
    session_id, _ = await bench.session(faulty("wait"))
    submitted = await bench.live.submit(session_id, TurnRequest(PROMPT, timeout_s=0.5))

    with pytest.raises(TimeoutError):
        await bench.result(submitted)

    end = bench.end_of(submitted)
    assert (end["status"], end["error"]["code"]) == ("failed", "execution-timeout")


async def test_a_module_that_blocks_holds_up_its_own_worker_only(bench: WorkerBench) -> None:
    blocking, folder = await bench.session(faulty("block"))
    other, _ = await bench.session(tools=[{"module": "tool-filesystem"}])
    submitted = await bench.live.submit(blocking, TurnRequest(PROMPT))
    await until((folder / "begun").exists)

    assert (await bench.run(other))["status"] == "completed"
    await until(lambda: bench.state_of_worker(blocking) == "blocked")
    assert bench.state_of_worker(other) == "ready"
    (folder / "go").touch()
    assert (await bench.result(submitted))["status"] == "completed"


async def test_a_turn_that_blocks_for_good_is_ended_by_an_immediate_cancellation(small: WorkerBench) -> None:
    session_id, folder = await small.session(faulty("block"))
    submitted = await small.live.submit(session_id, TurnRequest(PROMPT))
    await until((folder / "begun").exists)

    for asked in (
        small.live.cancel(session_id),
        small.live.queued(session_id),
        small.live.submit(session_id, TurnRequest("later", queue=True)),
        small.live.acts.rename(session_id, name="Blocked"),
    ):
        with pytest.raises(NotReadyError, match="blocked"):
            await asked
    await small.live.cancel(session_id, immediate=True)

    assert (await small.result(submitted))["status"] == "failed"
    assert (await small.run(session_id))["status"] == "completed"


async def test_a_broken_orchestrator_is_told_in_the_kernel_s_words(bench: WorkerBench) -> None:
    session_id, _ = await bench.session(orchestrator="loop-of-another-world")

    with pytest.raises(ModuleLoadError, match="Cannot initialize without orchestrator"):
        await bench.live.load(session_id)
    assert bench.live.state(session_id) is None


async def test_a_worker_ends_with_its_daemon_and_its_session_can_be_resumed(bench: WorkerBench) -> None:
    session_id, folder = await bench.session(faulty("start"))
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, DAEMON, bench.home.paths.home, session_id, PROMPT, MODULES), stdout=asyncio.subprocess.PIPE
    )
    assert daemon.stdout is not None
    told = json.loads(await daemon.stdout.readline())
    (folder / "worker").write_text(str(told["worker"]))
    await until((folder / "child").exists)
    assert told["imported"] == []

    daemon.kill()
    await daemon.wait()
    await until(lambda: not is_alive(folder / "worker"))
    await until(lambda: not is_alive(folder / "child"))

    assert (await bench.run(session_id))["turn"] == 2
    told_again = bench.told(session_id)
    assert told_again.index("execution:done") < told_again.index("user_message:saved")  # that of the broken turn


async def test_a_worker_that_cannot_notice_the_end_of_its_daemon_is_ended_by_the_next(bench: WorkerBench) -> None:
    session_id, folder = await bench.session(faulty("start"))
    daemon = await asyncio.create_subprocess_exec(
        *(sys.executable, DAEMON, bench.home.paths.home, session_id, PROMPT, MODULES), stdout=asyncio.subprocess.PIPE
    )
    assert daemon.stdout is not None
    told = json.loads(await daemon.stdout.readline())
    (folder / "worker").write_text(str(told["worker"]))
    await until((folder / "child").exists)
    os.kill(told["worker"], signal.SIGSTOP)
    daemon.kill()
    await daemon.wait()
    assert is_alive(folder / "worker")

    assert (await bench.run(session_id))["turn"] == 2
    assert not is_alive(folder / "worker")
    assert not is_alive(folder / "child")


async def test_a_worker_that_leaks_ends_after_its_turn(small: WorkerBench) -> None:
    session_id, _ = await small.session(faulty("leak", megabytes=200))
    await small.live.load(session_id)
    worker = small.worker_of(session_id)

    assert (await small.run(session_id, PROMPT))["status"] == "completed"
    await until(lambda: worker not in [one.pid for one in small.live.workers()])

    assert small.live.state(session_id) is None
    assert (await small.run(session_id))["turn"] == 2
    await small.live.unload(session_id)


async def test_a_worker_that_nothing_runs_in_ends(small: WorkerBench) -> None:
    session_id, _ = await small.session()
    await small.live.load(session_id)
    worker = small.worker_of(session_id)

    await small.live.unload(session_id)
    await until(lambda: worker not in [one.pid for one in small.live.workers()])
