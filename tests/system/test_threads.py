"""Blocking work off the event loop."""

import asyncio
import threading

import pytest

from amplifier_system.threads import Stop, Stopped, in_thread


async def test_work_runs_in_another_thread_and_returns_or_raises() -> None:
    def fail(stop: Stop) -> None:
        raise ValueError("no")

    assert await in_thread(lambda stop: threading.current_thread()) is not threading.current_thread()
    with pytest.raises(ValueError, match="no"):
        await in_thread(fail)


@pytest.mark.parametrize("patient", [True, False])
async def test_a_cancellation_stops_the_work_and_waits_until_it_has_ended(patient: bool) -> None:
    started, ended = threading.Event(), threading.Event()

    def work(stop: Stop) -> None:
        started.set()
        stop.wait(10)
        try:
            stop.check()
        except Stopped:
            ended.set()
            raise

    task = asyncio.create_task(in_thread(work, patient=patient))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


@pytest.mark.parametrize("patient", [True, False])
async def test_only_patience_outlasts_a_second_cancellation(patient: bool) -> None:
    started, go_on = threading.Event(), threading.Event()

    def work(stop: Stop) -> None:
        started.set()
        go_on.wait(10)

    task = asyncio.create_task(in_thread(work, patient=patient))
    await asyncio.to_thread(started.wait, 10)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert task.done() is not patient
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
