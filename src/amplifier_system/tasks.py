"""Work that is awaited to its end, whatever happens to those who wait for it."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


async def run_to_end(work: Awaitable[T]) -> T:
    """Return what `work` returns; a cancellation meanwhile is raised when it has ended."""
    task = asyncio.ensure_future(work)
    interruption = await _wait_for(task)
    if interruption is not None:
        if not task.cancelled() and (error := task.exception()):
            logger.error("work that was finished despite a cancellation failed", exc_info=error)
        raise interruption
    return task.result()


async def finished(task: "asyncio.Future[Any]") -> None:
    """Wait until a task is over, whatever its outcome; a cancellation meanwhile is raised then."""
    interruption = await _wait_for(task)
    if not task.cancelled():
        task.exception()  # read, so that it is not reported as lost
    if interruption is not None:
        raise interruption


async def _wait_for(task: "asyncio.Future[Any]") -> asyncio.CancelledError | None:
    """Wait until a task is over and return the cancellation that came meanwhile."""
    interruption: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as exc:
            interruption = exc
    return interruption
