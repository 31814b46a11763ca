"""Many sessions at once: every event arrives, in order, and more than one process works."""

import asyncio
import os

import pytest
from worker_bench import WorkerBench

from amplifierd.workers.live_sessions import TurnRequest
from amplifierd.workers.serving import NICENESS

pytestmark = pytest.mark.asyncio(loop_scope="module")

ANSWER = " ".join(f"word{number}" for number in range(40))


async def test_fifty_streaming_sessions_lose_and_reorder_nothing(bench: WorkerBench) -> None:
    sessions = [(await bench.session([ANSWER], provider={"stream_delay_ms": 5}))[0] for _ in range(50)]

    submitted = await asyncio.gather(*(bench.live.submit(one, TurnRequest("go")) for one in sessions))
    results = [await bench.result(one) for one in submitted]

    assert {result["response"] for result in results} == {ANSWER}
    for session_id in sessions:
        own = [event for event in bench.events if event.session_id == session_id]
        places = [event.cursor for event in own if event.cursor is not None]
        assert places == sorted({*places})
        assert [place.seq for place in places if not place.piece] == list(range(1, places[-1].seq + 1))
        assert sum(event.is_delta for event in own) >= 40
    assert len({bench.worker_of(one) for one in sessions}) > 1
    assert {state.activity for state in bench.live.states()} == {"idle"}


async def test_workers_leave_busy_cores_to_their_daemon(bench: WorkerBench) -> None:
    session_id, *_ = await bench.session(["Done."])
    await bench.live.load(session_id)

    daemon = os.getpriority(os.PRIO_PROCESS, 0)
    workers = {os.getpriority(os.PRIO_PROCESS, worker.pid) for worker in bench.live.workers()}

    assert workers == {min(daemon + NICENESS, 19)}
