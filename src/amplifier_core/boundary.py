"""The edge between this code and the code of others: modules, hooks, displays, callbacks of applications.

What they raise must be named after them, must leave a traceback in the log, and must not take down what is not theirs.
`Boundary` is the one way to contain an error, `raised_as` the one way to turn it into one of ours; `settle` takes what
they return, whether or not it has to be awaited, and `at_once` only what need not be; `emit_quietly` tells them what
has happened already.
"""

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CoroutineType, TracebackType
from typing import Any, Protocol, Self

from .events import EventData
from .exceptions import text_of

logger = logging.getLogger(__name__)

Errors = type[BaseException] | tuple[type[BaseException], ...]


class Emitter(Protocol):
    """What events are emitted on: a hook registry, or a stand-in for one."""

    async def emit(self, event: str, data: EventData) -> object: ...


class Boundary:
    """A `with` block around code of others: an error in it is logged with its traceback, kept, and ends there.

        with Boundary(logger, "progress callback failed on %r: %s", action) as boundary:
            callback(action)
        if boundary.error is not None: ...

    The error's text is the last argument of the message. What is not an `Exception` passes: a keyboard interrupt, the
    end of the process, a cancellation; `catches` names other classes, where even that must not get out.
    """

    __slots__ = ("_arguments", "_catches", "_level", "_logger", "_message", "error")

    def __init__(
        self,
        logger: logging.Logger,
        message: str,
        *arguments: object,
        level: int = logging.WARNING,
        catches: Errors = Exception,
    ) -> None:
        self._logger, self._message, self._arguments = logger, message, arguments
        self._level, self._catches = level, catches
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None or not isinstance(error, self._catches):
            return False
        self.error = error
        self._logger.log(self._level, self._message, *self._arguments, text_of(error), exc_info=error)
        return True


class TaskBoundary(Boundary):
    """A boundary inside a task: code that raises `CancelledError` by itself has failed like any other.

    The cancellation of the task that waits here passes.
    """

    __slots__ = ("_met", "_task")

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        self._met = cancellations_met(self._task)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if isinstance(error, asyncio.CancelledError):
            if is_cancelled(self._task, self._met):
                return False
            self._catches = asyncio.CancelledError
        return super().__exit__(kind, error, traceback)


@contextmanager
def raised_as(make: Callable[[Any], Exception], *, catches: Errors = Exception, passes: Errors = ()) -> Iterator[None]:
    """Raise what `make` makes of an error in the `with` block, with the error as its cause; `passes` are left alone."""
    try:
        yield
    except passes:
        raise
    except catches as error:
        raise make(error) from error


async def settle(value: Any) -> Any:
    """Return a value, awaited if it can be: a coroutine, a future, a task, any awaitable."""
    return await value if inspect.isawaitable(value) else value


def at_once(returned: Any) -> Any:
    """Return what a call returned; None for a coroutine, which a stand-in may make of every method."""
    if type(returned) is CoroutineType:
        returned.close()
        return None
    return returned


async def emit_quietly(hooks: Emitter | None, event: str, payload: EventData, *, level: int = logging.WARNING) -> None:
    """Emit an event that only reports what has happened; that it cannot be emitted is for the log.

    Without a registry, or on a stand-in that cannot emit, nothing happens.
    """
    emit = getattr(hooks, "emit", None)
    if emit is not None:
        try:  # written out, because a turn comes by here for everything it reports
            await emit(event, payload)
        except Exception:
            logger.log(level, "%s could not be emitted", event, exc_info=True)


def cancellations_met(task: "asyncio.Task[Any] | None") -> int:
    """Return how many requests to stop have reached `task`, for `is_cancelled`.

    One that came while the task was running, from a signal handler for instance, is still on its way.
    """
    return task.cancelling() - getattr(task, "_must_cancel", False) if task is not None else 0


def is_cancelled(task: "asyncio.Task[Any] | None", met: int) -> bool:
    """True if a request to stop `task` has reached it since `met` of them had.

    Called code may also meet a cancellation of its own making, such as a time-out it handles itself.
    """
    return task is not None and task.cancelling() > met
