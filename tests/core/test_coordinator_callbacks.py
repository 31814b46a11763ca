"""What modules give the coordinator to call: contributors to its channels, and cleanups for the end."""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from amplifier_core.coordinator import ModuleCoordinator


@pytest.fixture
def coordinator() -> ModuleCoordinator:
    return ModuleCoordinator()


def test_contributors_are_appended_even_under_the_same_name(coordinator: ModuleCoordinator) -> None:
    coordinator.register_contributor("session.cost", "provider", dict)
    coordinator.register_contributor("session.cost", "provider", list)

    assert coordinator.channels == {
        "session.cost": [{"name": "provider", "callback": dict}, {"name": "provider", "callback": list}]
    }


async def test_contributions_come_in_order_of_registration_from_any_kind_of_callable(
    coordinator: ModuleCoordinator,
) -> None:
    order: list[str] = []

    async def later(value: Any) -> Any:
        order.append("later begins")
        await asyncio.sleep(0)
        order.append("later ends")
        return value

    def at_once() -> list[str]:
        order.append("at once")
        return ["at once"]

    for callback in (partial(later, "a"), lambda: later("b"), at_once, lambda: None, lambda: 0, list, str):
        coordinator.register_contributor("observability.events", "module", callback)

    assert await coordinator.collect_contributions("observability.events") == ["a", "b", ["at once"], 0, [], ""]
    assert order == ["later begins", "later ends"] * 2 + ["at once"]
    assert await coordinator.collect_contributions("unknown") == []
    assert "unknown" not in coordinator.channels


async def fail_later() -> None:
    await asyncio.sleep(0)
    raise ValueError("wrong")


def fail() -> None:
    raise ValueError("wrong")


@pytest.mark.parametrize("callback", [fail, fail_later, None, 5], ids=["sync", "async", "None", "a number"])
async def test_a_contributor_that_fails_is_left_out(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture, callback: Any
) -> None:
    coordinator.register_contributor("session.cost", "broken", callback)
    coordinator.register_contributor("session.cost", "sound", lambda: 1)

    assert await coordinator.collect_contributions("session.cost") == [1]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("Contributor 'broken' on channel 'session.cost' failed: ")


@pytest.mark.parametrize("suspends", [False, True], ids=["straight through", "suspending"])
async def test_a_contributor_that_was_cancelled_ends_the_collection(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture, suspends: bool
) -> None:
    async def cancelled() -> None:
        if suspends:
            await asyncio.sleep(0)
        raise asyncio.CancelledError

    for name, callback in [("first", lambda: 1), ("cancelled", cancelled), ("last", lambda: 2)]:
        coordinator.register_contributor("session.cost", name, callback)

    assert await coordinator.collect_contributions("session.cost") == [1]
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert "cancelled" in record.getMessage()


@pytest.mark.parametrize("is_early", [False, True], ids=["while waiting", "before"])
async def test_cancelling_who_collects_is_not_swallowed(coordinator: ModuleCoordinator, is_early: bool) -> None:
    started = asyncio.Event()

    async def waiting() -> None:
        started.set()
        await asyncio.Event().wait()

    async def collecting() -> None:
        if is_early:
            asyncio.current_task().cancel()  # as a signal handler does that interrupts the running task
        await coordinator.collect_contributions("session.cost")

    coordinator.register_contributor("session.cost", "waiting", waiting)
    task = asyncio.create_task(collecting())
    await started.wait()
    if not is_early:
        task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_contributors_registered_meanwhile_wait_for_the_next_collection(coordinator: ModuleCoordinator) -> None:
    def multiplying() -> int:
        coordinator.register_contributor("session.cost", "child", lambda: 2)
        return 1

    coordinator.register_contributor("session.cost", "parent", multiplying)

    assert await coordinator.collect_contributions("session.cost") == [1]
    assert await coordinator.collect_contributions("session.cost") == [1, 2]


async def test_cleanups_run_once_last_one_first_whatever_kind_of_callable(coordinator: ModuleCoordinator) -> None:
    order: list[str] = []

    async def later(note: str) -> None:
        await asyncio.sleep(0)
        order.append(note)

    class Closing:
        async def __call__(self) -> None:
            await later("object")

    cleanups: list[Callable[[], Any]] = [
        lambda: order.append("sync"),
        partial(later, "partial"),
        lambda: later("lambda"),
        Closing(),
    ]
    for cleanup in (*cleanups, None, {}, 5, "text", object()):
        coordinator.register_cleanup(cleanup)

    await coordinator.cleanup()
    await coordinator.cleanup()

    assert order == ["object", "lambda", "partial", "sync"]


async def test_a_cleanup_registered_during_cleanup_runs_too(coordinator: ModuleCoordinator) -> None:
    order: list[str] = []
    coordinator.register_cleanup(lambda: order.append("first"))
    coordinator.register_cleanup(lambda: coordinator.register_cleanup(lambda: order.append("late")))

    await coordinator.cleanup()

    assert sorted(order) == ["first", "late"]


async def test_a_cleanup_that_fails_is_logged_and_the_others_run(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture
) -> None:
    order: list[str] = []
    for cleanup in (lambda: order.append("first"), fail, fail_later, lambda: order.append("last")):
        coordinator.register_cleanup(cleanup)

    await coordinator.cleanup()

    assert order == ["last", "first"]
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.ERROR, "Error during cleanup: wrong")
    ] * 2


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
async def test_an_interruption_is_raised_after_the_last_cleanup(
    coordinator: ModuleCoordinator, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    order: list[str] = []

    def interrupt(note: str) -> None:
        order.append(note)
        raise error(note)

    cleanups = (lambda: order.append("first"), lambda: interrupt("2"), lambda: interrupt("1"), fail)
    for cleanup in cleanups:
        coordinator.register_cleanup(cleanup)

    with pytest.raises(error, match=r"^1$"):
        await coordinator.cleanup()

    assert order == ["1", "2", "first"]
    assert [record.getMessage() for record in caplog.records] == [
        f"Error during cleanup: {text}" for text in ("wrong", "1", "2")
    ]
    await coordinator.cleanup()
    assert len(order) == 3


async def test_cancelling_a_cleanup_lets_the_others_run(coordinator: ModuleCoordinator) -> None:
    order, started = list[str](), asyncio.Event()

    async def waiting() -> None:
        started.set()
        await asyncio.Event().wait()

    coordinator.register_cleanup(lambda: order.append("first"))
    coordinator.register_cleanup(waiting)
    task = asyncio.create_task(coordinator.cleanup())
    await started.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert order == ["first"]
