"""Work in tasks of its own: started here and nowhere else, and awaited to its end whatever happens to those who wait.

Loops that must not end are started by a `Supervisor`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, TypeVar

from .surroundings import steady_time

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


class Opening(Coroutine[Any, Any, T], Generic[T]):
    """`opened = await opening`, or `async with opening as opened:`. It is a coroutine, so it can be made a task."""

    def __init__(self, opening: Coroutine[Any, Any, T], close: Callable[[T], Awaitable[None]]) -> None:
        self._opening, self._close = opening, close
        self._opened: list[T] = []

    def __await__(self) -> Generator[Any, Any, T]:
        return self._opening.__await__()

    def send(self, value: Any) -> Any:
        return self._opening.send(value)

    def throw(self, *error: Any) -> Any:
        return self._opening.throw(*error)

    def close(self) -> None:
        self._opening.close()

    async def __aenter__(self) -> T:
        opened = await self._opening
        self._opened.append(opened)
        return opened

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for opened in self._opened:
            await self._close(opened)


# Loops that must not end: a supervisor starts them again, logs why they ended, and knows how they are.


_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 10.0
_STEADY_S = 3 * _LONGEST_PAUSE_S
"""A loop that has run for so long without an error has recovered."""


@dataclass(frozen=True, slots=True)
class LoopState:
    """How a loop is: how often it was started again, and its last error while it has not recovered from it."""

    name: str
    is_running: bool
    restarts: int
    error: str | None

    @property
    def is_degraded(self) -> bool:
        return self.error is not None or not self.is_running


class _Loop:
    """One loop and its history."""

    def __init__(
        self, name: str, work: Callable[[], Awaitable[None]], first_pause_s: float, stalls_after_s: float | None
    ) -> None:
        self.name, self._work, self._stalls_after_s = name, work, stalls_after_s
        self._first_pause_s = self._pause_s = first_pause_s
        self._restarts = 0
        self._error: str | None = None
        self._begun = self._failing_since = self._failed_at = 0.0
        self._is_running = False
        self.task = asyncio.create_task(self._run(), name=name)

    async def _run(self) -> None:
        _own.set(self)
        while True:
            self._begun, self._is_running = steady_time(), True
            self.beat_at = self._begun
            try:
                await self._work()
            except Exception as error:
                self._is_running = False
                self._note(error)
                logger.exception("the loop %r ended and is started again in %.1f s", self.name, self._pause_s)
            else:
                return  # it has nothing left to do
            await asyncio.sleep(self._pause_s)
            self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
            self._restarts += 1

    def _note(self, error: Exception) -> None:
        if self._has_recovered:
            self._pause_s = self._first_pause_s
            self._error = None
        self._failed_at = steady_time()
        if self._error is None:
            self._failing_since = self._failed_at
        self._error = f"{type(error).__name__}: {error}"

    @property
    def _has_recovered(self) -> bool:
        return self._is_running and steady_time() - self._begun > _STEADY_S

    @property
    def _stalled_s(self) -> float:
        """For how long it has made no progress, beyond what it may take."""
        if self._stalls_after_s is None or not self._is_running:
            return 0.0
        return max(0.0, steady_time() - self.beat_at - self._stalls_after_s)

    @property
    def failing_s(self) -> float:
        """For how long it has been failing again and again, or has made no progress; 0 while it is well."""
        if self._error is None or steady_time() - self._failed_at > _STEADY_S:
            return self._stalled_s
        until = self._failed_at if self._is_running else steady_time()  # whether it fails again is not known yet
        return max(self._stalled_s, until - self._failing_since)

    @property
    def state(self) -> LoopState:
        error = None if self._has_recovered else self._error
        if stalled_s := self._stalled_s:
            error = f"it has made no progress for {stalled_s + (self._stalls_after_s or 0):.0f} s"
        return LoopState(self.name, self._is_running, self._restarts, error)


class Supervisor:
    """Keeps loops running in the event loops of their callers.

    A loop that raises is logged with its traceback and started again, after a pause that grows while it goes on
    failing. A loop that returns has ended on purpose, and one that is cancelled is forgotten.
    """

    def __init__(self, *, first_pause_s: float = _FIRST_PAUSE_S) -> None:
        self._first_pause_s = first_pause_s
        self._loops: dict[str, _Loop] = {}

    def start(
        self, name: str, work: Callable[[], Awaitable[None]], *, stalls_after_s: float | None = None
    ) -> asyncio.Task[None]:
        """Run a loop until it returns or the task is cancelled; one of the same name is replaced.

        A loop with `stalls_after_s` calls `beat` more often than that, or counts as standing still.
        """
        loop = self._loops[name] = _Loop(name, work, self._first_pause_s, stalls_after_s)

        def forget(task: asyncio.Task[None]) -> None:
            if self._loops.get(name) is loop:
                del self._loops[name]

        loop.task.add_done_callback(forget)
        return loop.task

    @property
    def states(self) -> list[LoopState]:
        """How the loops are, by name."""
        return [self._loops[name].state for name in sorted(self._loops)]

    @property
    def degraded(self) -> list[LoopState]:
        """The loops that failed and have not recovered yet."""
        return [state for state in self.states if state.is_degraded]

    def failing_for_s(self) -> float:
        """Return for how long the worst of the loops has been failing or has stood still; 0 while all are well."""
        return max((loop.failing_s for loop in tuple(self._loops.values())), default=0.0)


_own: ContextVar[_Loop | None] = ContextVar("supervised loop", default=None)


def beat() -> None:
    """Note that the loop which calls this makes progress."""
    if (loop := _own.get()) is not None:
        loop.beat_at = steady_time()


async def cancelled(*tasks: "asyncio.Task[None] | None") -> None:
    """Cancel tasks and wait until they are over."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
