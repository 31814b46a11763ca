"""Loops that must not end are started again, and it can be seen how they are."""

import asyncio
import logging

import pytest

from amplifier_system.tasks import Supervisor, beat, cancelled


async def test_a_loop_that_fails_is_started_again_and_its_error_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    supervisor, starts, works = Supervisor(first_pause_s=0.001), list[int](), asyncio.Event()

    async def loop() -> None:
        starts.append(len(starts))
        if len(starts) < 3:
            raise KeyError("a table is away")
        works.set()
        await asyncio.Event().wait()

    with caplog.at_level(logging.ERROR):
        task = supervisor.start("turns", loop)
        async with asyncio.timeout(5):
            await works.wait()

    assert len(starts) == 3
    assert [state.name for state in supervisor.degraded] == ["turns"]
    (state,) = supervisor.states
    assert (state.is_running, state.restarts, state.error) == (True, 2, "KeyError: 'a table is away'")
    assert "a table is away" in caplog.text
    assert "Traceback" in caplog.text
    await cancelled(task)


async def test_a_loop_that_returns_or_is_cancelled_has_ended() -> None:
    supervisor = Supervisor()

    async def loop() -> None:
        pass

    await supervisor.start("once", loop)
    task = supervisor.start("forever", asyncio.Event().wait)  # type: ignore[arg-type]  # it never returns
    await asyncio.sleep(0)
    assert [state.name for state in supervisor.states] == ["forever"]

    await cancelled(task, None)
    await asyncio.sleep(0)

    assert supervisor.states == []


async def test_a_loop_without_progress_counts_as_failing_until_it_makes_some() -> None:
    supervisor, go_on = Supervisor(), asyncio.Event()

    async def stand_still() -> None:
        await go_on.wait()
        beat()
        await asyncio.Event().wait()

    task = supervisor.start("still", stand_still, stalls_after_s=0.01)
    await asyncio.sleep(0.05)

    assert [state.name for state in supervisor.degraded] == ["still"]
    assert supervisor.failing_for_s() > 0

    go_on.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert supervisor.degraded == []
    assert supervisor.failing_for_s() == 0
    await cancelled(task)
