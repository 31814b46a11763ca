"""A tool's work: off the event loop, stoppable, answered whatever happens."""

import asyncio
import logging
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import HookRegistry, ToolResult
from amplifier_core.testing import EventRecorder
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.runs import announce, answered, in_worker


async def raising(error: BaseException) -> ToolResult:
    raise error


async def test_a_failure_is_answered_and_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    result = await answered("tool", raising(ToolFailure("no", "not_found")))

    assert result.error == {"message": "no", "code": "not_found"}
    assert caplog.records == []


async def test_an_unexpected_exception_is_answered_without_its_text_and_logged_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    result = await answered("tool", raising(RuntimeError("password=hunter2")))

    assert result.error is not None
    assert (result.error["code"], result.error["type"]) == ("internal_error", "RuntimeError")
    assert "hunter2" not in str(result)
    (record,) = caplog.records
    assert (record.levelno, bool(record.exc_info)) == (logging.ERROR, True)


async def test_only_cancellation_gets_out() -> None:
    with pytest.raises(asyncio.CancelledError):
        await answered("tool", raising(asyncio.CancelledError()))


async def test_work_runs_in_another_thread_and_returns_or_raises() -> None:
    def fail(stop: threading.Event) -> None:
        raise ToolFailure("no", "not_found")

    assert await in_worker(lambda stop: threading.current_thread()) is not threading.current_thread()
    with pytest.raises(ToolFailure):
        await in_worker(fail)


async def test_a_second_cancellation_does_not_wait() -> None:
    started, go_on = threading.Event(), threading.Event()

    def work(stop: threading.Event) -> None:
        started.set()
        go_on.wait(10)

    task = asyncio.create_task(in_worker(work))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert not go_on.is_set()
    go_on.set()


async def test_events_reach_the_hooks() -> None:
    hooks, recorder = HookRegistry(), EventRecorder()
    hooks.register("x:done", recorder.record, name="recorder")

    await announce(SimpleNamespace(hooks=hooks), "x:done", {"a": 1})

    assert recorder.get_events("x:done")[0][1]["a"] == 1


@pytest.mark.parametrize("coordinator", [None, object(), SimpleNamespace(hooks=None)])
async def test_without_hooks_nothing_happens(coordinator: Any) -> None:
    await announce(coordinator, "x:done", {})


async def test_a_sink_that_fails_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    class Sink:
        async def emit(self, event: str, data: Any) -> None:
            raise RuntimeError("broken")

    await announce(SimpleNamespace(hooks=Sink()), "x:done", {})

    assert [record.levelname for record in caplog.records] == ["WARNING"]
