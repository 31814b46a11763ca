"""Turns that are asked to stop, gracefully or at once, by the token or by their task."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from amplifier_core import AmplifierSession, HookResult

Listen = Callable[..., list[tuple[str, dict[str, Any]]]]
Started = Callable[..., Awaitable[AmplifierSession]]


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_turn_that_ends_after_a_cancel_request_counts_as_cancelled(
    started: Started, listen: Listen, immediate: bool
) -> None:
    session = await started()
    session.coordinator.hooks.set_default_fields()
    heard = listen(session.coordinator, "cancel:completed")

    async def stop() -> str:
        await session.coordinator.request_cancel(immediate=immediate)
        return "stopped early"

    session.coordinator.get("orchestrator").outcome = stop

    assert await session.execute("hello") == "stopped early"
    assert session.status.status == "cancelled"
    assert [set(data) - {"timestamp"} for _, data in heard] == [{"was_immediate"}]
    assert heard[0][1]["was_immediate"] is immediate


@pytest.mark.parametrize("immediate", [False, True])
async def test_an_error_after_a_cancel_request_counts_as_cancelled_and_is_raised(
    started: Started, listen: Listen, caplog: pytest.LogCaptureFixture, immediate: bool
) -> None:
    caplog.set_level(logging.INFO, logger="amplifier_core")
    error = ValueError("interrupted")
    session = await started()
    session.coordinator.hooks.set_default_fields()
    heard = listen(session.coordinator, "cancel:completed")

    async def stop() -> None:
        await session.coordinator.request_cancel(immediate=immediate)
        raise error

    session.coordinator.get("orchestrator").outcome = stop

    with pytest.raises(ValueError, match="interrupted") as caught:
        await session.execute("hello")

    assert caught.value is error
    assert session.status.status == "cancelled"
    assert session.status.last_error is None
    data = heard[0][1]
    assert {key: data[key] for key in data if key != "timestamp"} == {
        "was_immediate": immediate,
        "error": "interrupted",
    }
    assert [
        record.levelno for record in caplog.records if record.getMessage() == "Execution cancelled: interrupted"
    ] == [logging.INFO]
    assert "Execution failed" not in caplog.text


@pytest.mark.parametrize("immediate", [None, False, True])
async def test_cancelling_the_task_of_a_turn_leaves_the_session_usable(
    started: Started, listen: Listen, immediate: bool | None
) -> None:
    waiting = asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    session = await started(wait)
    heard = listen(session.coordinator, "cancel:completed")
    turn = asyncio.create_task(session.execute("one"))
    await waiting.wait()
    if immediate is not None:
        await session.coordinator.request_cancel(immediate=immediate)

    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    assert session.status.status == ("failed" if immediate is None else "cancelled")
    assert [data["was_immediate"] for _, data in heard] == ([] if immediate is None else [immediate])
    session.coordinator.cancellation.reset()
    session.coordinator.get("orchestrator").outcome = "again"
    assert await session.execute("two") == "again"
    assert session.status.status == "completed"
    await session.cleanup()
    assert not session.initialized


async def test_a_handler_that_waits_hears_the_end_of_a_cancelled_turn_to_the_end(started: Started) -> None:
    waiting, finished = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        waiting.set()
        await asyncio.Event().wait()

    async def slow_handler(event: str, data: dict[str, Any]) -> HookResult:
        await asyncio.sleep(0)
        finished.set()
        return HookResult()

    session = await started(wait)
    session.coordinator.hooks.register("cancel:completed", slow_handler)
    turn = asyncio.create_task(session.execute("one"))
    await waiting.wait()
    await session.coordinator.request_cancel(immediate=True)

    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    assert finished.is_set()


async def test_an_error_is_not_lost_when_the_end_of_a_cancelled_turn_cannot_be_announced(started: Started) -> None:
    error = ValueError("the reason")
    session = await started()
    working_emit = session.coordinator.hooks.emit

    async def stop() -> None:
        await session.coordinator.request_cancel()
        raise error

    async def emit(event: str, data: dict[str, Any]) -> HookResult:
        if event == "cancel:completed":
            raise ConnectionError("no one listens")
        return await working_emit(event, data)

    session.coordinator.get("orchestrator").outcome = stop
    session.coordinator.hooks.emit = emit  # type: ignore[method-assign]

    with pytest.raises(ValueError, match="the reason") as caught:
        await session.execute("hello")

    assert caught.value is error


async def test_an_answer_is_not_lost_when_the_end_of_a_cancelled_turn_cannot_be_announced(started: Started) -> None:
    session = await started()
    await session.execute("one")
    await session.coordinator.request_cancel()

    async def broken_emit(event: str, data: dict[str, Any]) -> HookResult:
        raise ConnectionError("no one listens")

    session.coordinator.hooks.emit = broken_emit  # type: ignore[method-assign]

    assert await session.execute("two") == "done"
    assert session.status.status == "cancelled"


async def test_a_coroutine_of_a_cancelled_turn_can_be_closed(started: Started) -> None:
    async def wait() -> None:
        await session.coordinator.request_cancel()
        await asyncio.Event().wait()

    session = await started(wait)
    turn = session.execute("hello")
    turn.send(None)

    turn.close()

    assert session.status.status == "cancelled"


async def test_the_kernel_does_not_reset_a_cancel_request(started: Started) -> None:
    session = await started()
    await session.coordinator.request_cancel()

    await session.execute("one")
    assert session.coordinator.cancellation.is_cancelled

    session.coordinator.cancellation.reset()
    await session.execute("two")
    assert session.status.status == "completed"


async def test_cancelling_a_parent_cancels_its_children(started: Started) -> None:
    parent, child = await started(), await started()
    parent.coordinator.cancellation.register_child(child.coordinator.cancellation)

    await parent.coordinator.request_cancel(immediate=True)
    await child.execute("hello")

    assert child.status.status == "cancelled"
