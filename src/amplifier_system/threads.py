"""Blocking work off the event loop that a cancellation can stop."""

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from .tasks import finished

T = TypeVar("T")


class Stopped(Exception):
    """Raised inside a thread whose work is no longer wanted."""


class Stop(threading.Event):
    """Asks work in a thread to end; the work looks at it between its steps."""

    def check(self) -> None:
        """Raise `Stopped` when the work is to end."""
        if self.is_set():
            raise Stopped


async def in_thread(work: Callable[[Stop], T], *, patient: bool = True) -> T:
    """Run blocking `work` in a thread and return what it returns.

    A cancellation sets the `Stop` that `work` was given, and goes on once the work has ended, so that nothing is left
    half done. Without patience a second cancellation does not wait any longer.
    """
    stop = Stop()
    in_context = partial(copy_context().run, work, stop)
    running = asyncio.get_running_loop().run_in_executor(None, in_context)  # `to_thread` would take a task as well
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        if patient:
            await finished(running)
        else:
            running.add_done_callback(_retrieve)
            await asyncio.wait({running})
        raise


def _retrieve(done: "asyncio.Future[Any]") -> None:
    """Take note of how abandoned work ended, so that it is not reported as never retrieved."""
    if not done.cancelled():
        done.exception()
