"""Work in tasks of its own: started here and nowhere else, and awaited to its end whatever happens to those who wait.

Loops that must not end are started by a `Supervisor`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


_running: "set[asyncio.Task[Any]]" = set()


def start_task(work: Awaitable[T], *, name: str | None = None) -> "asyncio.Task[T]":
    """Start work that has an end. It is kept until then, also if nothing else knows its task."""
    task = asyncio.create_task(work if isinstance(work, Coroutine) else _awaited(work), name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


async def _awaited(work: Awaitable[T]) -> T:
    return await work


async def run_to_end(work: Awaitable[T], *, undo: Callable[[T], None] | None = None) -> T:
    """Return what `work` returns; a cancellation meanwhile is raised when it has ended.

    `undo` is then given what it would have returned, which no one else will see.
    """
    task = asyncio.ensure_future(work)
    try:
        await _End(task)
    except asyncio.CancelledError:
        if not task.cancelled():
            if error := task.exception():
                logger.exception("work that was finished despite a cancellation failed", exc_info=error)
            elif undo is not None:
                undo(task.result())
        raise
    return task.result()


async def finished(task: "asyncio.Future[Any]") -> None:
    """Wait until a task is over, whatever its outcome; a cancellation meanwhile is raised then."""
    try:
        await _End(task)
    finally:
        read_outcome(task)


def read_outcome(task: "asyncio.Future[Any]") -> None:
    """Take what came of a task that nothing waits for any more, so that its error is not reported as lost."""
    if not task.cancelled():
        task.exception()


class _End(asyncio.Future[None]):
    """The end of a task. A caller that is cancelled while it waits hears of that when the task is over."""

    def __init__(self, task: "asyncio.Future[Any]") -> None:
        super().__init__(loop=task.get_loop())
        task.add_done_callback(self._come)

    def _come(self, task: "asyncio.Future[Any]") -> None:
        self.set_result(None)

    def cancel(self, msg: Any | None = None) -> bool:
        return False
