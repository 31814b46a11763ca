"""The edge to code of others: what gets out of it, what is logged, and what is awaited."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_core import HookRegistry
from amplifier_core.boundary import Boundary, TaskBoundary, emit_quietly, raised_as, settle
from amplifier_core.coordinator import ModuleCoordinator

logger = logging.getLogger("amplifier_core.test")


class Awaitable:
    def __await__(self) -> Any:
        yield from asyncio.sleep(0).__await__()
        return "answer"


async def coroutine() -> str:
    return "answer"


def future() -> "asyncio.Future[str]":
    made: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(made.set_result, "answer")
    return made


@pytest.mark.parametrize(
    "make", [lambda: "answer", coroutine, future, lambda: asyncio.create_task(coroutine()), Awaitable]
)
async def test_whatever_is_returned_is_settled(make: Callable[[], Any]) -> None:
    assert await settle(make()) == "answer"


async def test_a_cleanup_that_returns_a_future_is_waited_for() -> None:
    coordinator, done = ModuleCoordinator(), list[str]()

    async def end() -> None:
        await asyncio.sleep(0)
        done.append("ended")

    coordinator.register_cleanup(lambda: asyncio.ensure_future(end()))
    await coordinator.cleanup()

    assert done == ["ended"]


def test_an_error_is_contained_kept_and_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with Boundary(logger, "the display %r failed: %s", "tty") as boundary:
        raise OSError("gone")

    (record,) = caplog.records
    assert isinstance(boundary.error, OSError)
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "the display 'tty' failed: gone")
    assert record.exc_info is not None
    assert record.exc_info[1] is boundary.error


def test_a_block_without_error_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with Boundary(logger, "failed: %s") as boundary:
        pass

    assert boundary.error is None
    assert caplog.records == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_what_is_not_an_error_passes(error: type[BaseException]) -> None:
    with pytest.raises(error), Boundary(logger, "failed: %s"):
        raise error


def test_a_boundary_may_catch_more() -> None:
    with Boundary(logger, "failed: %s", catches=(Exception, SystemExit)) as boundary:
        raise SystemExit(3)

    assert isinstance(boundary.error, SystemExit)


def test_an_error_that_cannot_be_told_is_contained_all_the_same(caplog: pytest.LogCaptureFixture) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    with Boundary(logger, "failed: %s"):
        raise Mute

    assert caplog.records[0].getMessage() == "failed: Mute"


async def test_code_that_cancels_itself_has_failed() -> None:
    with TaskBoundary(logger, "failed: %s") as boundary:
        raise asyncio.CancelledError

    assert isinstance(boundary.error, asyncio.CancelledError)


async def test_the_cancellation_of_the_waiting_task_passes() -> None:
    entered = asyncio.Event()

    async def wait() -> None:
        with TaskBoundary(logger, "failed: %s"):
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await entered.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


def test_an_error_becomes_another_with_the_first_as_its_cause() -> None:
    with (
        pytest.raises(RuntimeError, match="no module: gone") as caught,
        raised_as(lambda e: RuntimeError(f"no module: {e}")),
    ):
        raise OSError("gone")

    assert isinstance(caught.value.__cause__, OSError)


def test_an_error_that_needs_no_other_words_passes() -> None:
    error = KeyError("ours")

    with pytest.raises(KeyError) as raised, raised_as(lambda e: RuntimeError(str(e)), passes=LookupError):
        raise error

    assert (raised.value, error.__cause__) == (error, None)


async def test_an_event_is_emitted_where_it_can_be_heard() -> None:
    hooks, heard = HookRegistry(), list[str]()

    async def listen(event: str, data: dict[str, Any]) -> None:
        heard.append(data["text"])

    hooks.register("note", listen)
    await emit_quietly(hooks, "note", {"text": "hello"})

    assert heard == ["hello"]


@pytest.mark.parametrize("hooks", [None, object()])
async def test_without_a_registry_nothing_is_emitted(hooks: Any, caplog: pytest.LogCaptureFixture) -> None:
    await emit_quietly(hooks, "note", {})

    assert caplog.records == []


async def test_a_registry_that_fails_is_a_warning_with_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def emit(self, event: str, data: dict[str, Any]) -> None:
            raise OSError("gone")

    await emit_quietly(Broken(), "note", {})

    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "note could not be emitted")
    assert record.exc_info is not None
