"""Work that several callers share, and small jobs that share a thread."""

import asyncio
import threading

import pytest

from amplifier_foundation.registry.library import SharedTasks
from amplifier_foundation.sources.store import WorkerBatches


async def test_work_is_done_once_for_all_who_ask_while_it_runs() -> None:
    tasks, runs = SharedTasks[int](), list[int]()

    async def work() -> int:
        runs.append(1)
        await asyncio.sleep(0)
        return len(runs)

    assert await asyncio.gather(*(tasks.run("key", work) for _ in range(3))) == [1, 1, 1]
    assert await tasks.run("key", work) == 2


async def test_an_error_reaches_everybody_as_the_same_object() -> None:
    tasks = SharedTasks[None]()

    async def work() -> None:
        raise KeyError("x")

    first, second = await asyncio.gather(tasks.run(1, work), tasks.run(1, work), return_exceptions=True)

    assert isinstance(first, KeyError)
    assert first is second


async def test_work_ends_when_nobody_waits_for_it_any_more() -> None:
    tasks, started, ended = SharedTasks[None](), asyncio.Event(), asyncio.Event()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    waiting = [asyncio.create_task(tasks.run("key", work)) for _ in range(2)]
    await started.wait()
    waiting[0].cancel()
    await asyncio.sleep(0)
    assert not ended.is_set()
    waiting[1].cancel()

    await asyncio.wait_for(ended.wait(), 10)
    assert all(
        isinstance(error, asyncio.CancelledError) for error in await asyncio.gather(*waiting, return_exceptions=True)
    )


async def test_the_last_one_to_give_up_waits_until_the_work_has_ended() -> None:
    tasks, started, ended = SharedTasks[None](), asyncio.Event(), list[bool]()

    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append(True)

    waiting = asyncio.create_task(tasks.run("key", work))
    await started.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert ended == [True]


async def test_whoever_asks_after_the_last_one_gave_up_gets_work_of_their_own() -> None:
    tasks, runs = SharedTasks[str](), list[int]()
    gate = asyncio.Event()

    async def work() -> str:
        runs.append(1)
        await gate.wait()
        return "done"

    first = asyncio.create_task(tasks.run("key", work))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    gate.set()

    assert await tasks.run("key", work) == "done"
    assert len(runs) == 2


async def test_jobs_run_in_few_threads_and_each_gets_its_own_result_or_error() -> None:
    batches, threads = WorkerBatches[int](), set[int]()

    def job(number: int) -> int:
        threads.add(threading.get_ident())
        if number % 5 == 0:
            raise ValueError(number)
        return number

    outcomes = await asyncio.gather(*(batches.run(lambda n=n: job(n)) for n in range(30)), return_exceptions=True)

    assert [str(outcome) for outcome in outcomes] == [str(number) for number in range(30)]
    assert all(isinstance(outcome, ValueError) for outcome in outcomes[::5])
    assert len(threads) <= 2
    assert threading.get_ident() not in threads


async def test_a_caller_who_gives_up_does_not_disturb_the_others_in_the_thread() -> None:
    batches, gate = WorkerBatches[str](), threading.Event()

    def wait() -> str:
        gate.wait(10)
        return "late"

    impatient, patient = asyncio.create_task(batches.run(wait)), asyncio.create_task(batches.run(lambda: "fine"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    impatient.cancel()
    gate.set()

    assert await patient == "fine"
    with pytest.raises(asyncio.CancelledError):
        await impatient


def test_jobs_of_several_event_loops_do_not_meet() -> None:
    batches, answers = WorkerBatches[int](), dict[int, list[int]]()

    async def ask(number: int) -> None:
        for _ in range(20):
            answers[number] = await asyncio.gather(*(batches.run(lambda n=n: number * n) for n in range(5)))

    threads = [threading.Thread(target=lambda n=number: asyncio.run(ask(n))) for number in (1, 10, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert answers == {number: [number * n for n in range(5)] for number in (1, 10, 100)}
