"""The contract of `TurnQueue`: one turn of a session at a time, in order, and never one too late."""

import pytest
from turn_bench import TurnBench
from worker_bench import faulty

from amplifierd.exceptions import (
    ExecutionInProgressError,
    NothingToSteerError,
    PromptRemovedError,
    QueueFullError,
    TurnDeadlineError,
)
from amplifierd.workers.live_sessions import QueuedPrompts, TurnRequest

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_turns_of_a_session_run_one_at_a_time_by_priority_and_then_in_order(bench: TurnBench) -> None:
    session_id, folder = await bench.workers.session([*faulty("wait"), *["Said."] * 9])
    first = await bench.begin(session_id, folder)

    with pytest.raises(ExecutionInProgressError):
        await bench.turns.submit(session_id, TurnRequest("refused"))
    two, three, urgent, four = [
        await bench.turns.submit(session_id, TurnRequest(prompt, queue=True, priority=priority))
        for prompt, priority in (("two", 0), ("three", 0), ("urgent", 5), ("four", -1))
    ]

    assert (first.status, {one.status for one in (two, three, urgent, four)}) == ("accepted", {"queued"})
    assert await bench.turns.waiting(session_id) == QueuedPrompts(["urgent", "two", "three", "four"], held=0)
    assert await bench.turns.remove(session_id, 3) == "three"
    with pytest.raises(NothingToSteerError):
        await bench.turns.remove(session_id, 4)
    with pytest.raises(PromptRemovedError):
        await bench.workers.result(three)
    end = bench.workers.end_of(three)
    assert (end["status"], end["error"]["code"]) == ("cancelled", "aborted")
    (folder / "go").touch()
    results = [await bench.workers.result(one) for one in (first, urgent, two, four)]
    assert [(one["turn"], one["status"]) for one in results] == [(n, "completed") for n in (1, 2, 3, 4)]
    assert results[1]["correlation_id"] == urgent.correlation_id
    assert len({one.correlation_id for one in (first, two, three, urgent, four)}) == 5


async def test_a_turn_that_does_not_begin_by_its_deadline_never_does(bench: TurnBench) -> None:
    session_id, folder = await bench.workers.session([*faulty("wait"), *["Said."] * 9])
    in_time = await bench.turns.submit(session_id, TurnRequest("at once", deadline_s=60))
    assert (await bench.workers.result(in_time))["status"] == "completed"
    await bench.begin(session_id, folder)

    late = await bench.turns.submit(session_id, TurnRequest("late", queue=True, deadline_s=0.05))
    with pytest.raises(TurnDeadlineError):
        await bench.workers.result(late)

    end = bench.workers.end_of(late)
    assert (end["status"], end["error"]["code"]) == ("failed", "execution-timeout")
    assert (await bench.turns.waiting(session_id)).prompts == []
    (folder / "go").touch()
    next_one = await bench.turns.submit(session_id, TurnRequest("next", queue=True))
    assert (await bench.workers.result(next_one))["turn"] == 3
    assert "late" not in str(await bench.workers.home.sessions.runtime.store.read_messages(session_id))


async def test_the_queue_of_a_session_has_an_end(bench: TurnBench) -> None:
    session_id, folder = await bench.workers.session(faulty("wait"))
    await bench.begin(session_id, folder)
    for number in range(bench.workers.home.settings.sessions.max_queue):
        await bench.turns.submit(session_id, TurnRequest(str(number), queue=True))

    with pytest.raises(QueueFullError):
        await bench.turns.submit(session_id, TurnRequest("one too many", queue=True))
    (folder / "go").touch()
