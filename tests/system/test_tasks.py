"""Work that is awaited to its end."""

import asyncio

import pytest

from amplifier_system.tasks import finished, run_to_end


async def test_work_that_must_end_returns_or_raises_as_it_does() -> None:
    async def fail() -> None:
        raise ValueError("no")

    assert await run_to_end(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(ValueError, match="no"):
        await run_to_end(fail())


async def test_work_that_fails_after_a_cancellation_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        await asyncio.sleep(0.02)
        raise ValueError("no")

    running = asyncio.create_task(run_to_end(fail()))
    await asyncio.sleep(0.01)
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert len(caplog.records) == 1


async def test_the_outcome_of_a_task_does_not_matter_to_who_waits_for_its_end() -> None:
    async def fail() -> None:
        raise ValueError("no")

    failing, cancelled = asyncio.ensure_future(fail()), asyncio.ensure_future(asyncio.sleep(60))
    cancelled.cancel()

    await finished(failing)
    await finished(cancelled)


async def test_a_cancellation_while_waiting_is_raised_when_the_task_is_over() -> None:
    go_on = asyncio.Event()
    task = asyncio.ensure_future(go_on.wait())
    waiting = asyncio.ensure_future(finished(task))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()

    go_on.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert task.result() is True


async def test_what_was_made_despite_a_cancellation_is_undone() -> None:
    undone: list[str] = []
    cancelled = asyncio.create_task(run_to_end(asyncio.sleep(0.01, "made"), undo=undone.append))
    await asyncio.sleep(0)
    cancelled.cancel()

    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert undone == ["made"]

    assert await run_to_end(asyncio.sleep(0, "kept"), undo=undone.append) == "kept"
    assert undone == ["made"]
