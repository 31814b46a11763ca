"""Blocking work off the event loop: work that a cancellation stops, and work that is left behind."""

import asyncio
import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

_SHORT_S = 0.001
_SHORT_ALONE_S = 0.05
_COMPANY_S = 0.1
"""For how long after its last piece of work a user of something counts as being at work."""

_MOST = min(32, (os.cpu_count() or 1) + 4)
_POLL_S = 0.005


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
    outcome: _Outcome[T] = _Outcome(work, patient)
    _threads.run(outcome)
    try:
        return await outcome
    except asyncio.CancelledError:
        if not outcome.cancelled():
            outcome.exception()  # read, so that it is not reported as lost
        raise


_NEVER = Stop()


class ShortWork:
    """Blocking work of one kind, done on the event loop for as long as it is short: to ask a thread takes longer then.

    It is short when none of the last pieces took long. Where one user was alone lately, no others have to wait, and a
    piece may take longer; so a slow disk keeps a busy process from nothing, and a quick one costs no thread.
    """

    def __init__(self, *, looks_back: int = 8, clock: Callable[[], float] = time.perf_counter) -> None:
        self._last: deque[tuple[object, float, float]] = deque(maxlen=looks_back)
        self._clock = clock
        self._kept_s = 0.0  # the event loop, since others had their turn

    def is_short(self, user: object = None) -> bool:
        last = self._last
        if len(last) < (last.maxlen or 0):
            return False
        lately_s = self._clock() - _COMPANY_S
        is_alone = user is not None and all([other is user or ended_s < lately_s for other, _, ended_s in last])
        return max([took_s for _, took_s, _ in last]) < (_SHORT_ALONE_S if is_alone else _SHORT_S)

    async def run(self, work: Callable[[Stop], T], user: object = None) -> T:
        """Do the work as `in_thread` does, or at once."""
        took_s = 0.0

        def timed(stop: Stop) -> T:
            nonlocal took_s
            begun_s = self._clock()
            try:
                return work(stop)
            finally:
                took_s = self._clock() - begun_s

        is_short = self.is_short(user)
        try:
            result = timed(_NEVER) if is_short else await in_thread(timed)
        finally:  # on the event loop, where it is read
            self._last.append((user, took_s, self._clock()))
        self._kept_s = self._kept_s + took_s if is_short else 0.0
        if self._kept_s > _SHORT_S:
            self._kept_s = 0.0
            await asyncio.sleep(0)
        return result


async def detached(name: str, work: Callable[[], T]) -> T:
    """Run `work`, which may take for ever, in a thread of its own, and return what it returns.

    A caller that is cancelled goes at once. The thread keeps nothing else waiting, not even the end of the process.
    """
    outcome: Future[T] = Future()
    outcome.set_running_or_notify_cancel()  # so that a result that is no longer awaited is just dropped
    context = copy_context()

    def run() -> None:
        try:
            outcome.set_result(context.run(work))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            outcome.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return await asyncio.wrap_future(outcome)


class _Outcome(asyncio.Future[T]):
    """What becomes of some work. A caller that is cancelled keeps waiting, and the work is asked to stop."""

    def __init__(self, work: Callable[[Stop], T], patient: bool) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._stop, self._patient = Stop(), patient
        self._context, self._work = copy_context(), work

    def cancel(self, msg: Any | None = None) -> bool:
        if self._patient or not self._stop.is_set():
            self._stop.set()
            return False
        return super().cancel(msg)

    def work(self) -> Callable[[], object]:
        """Do the work, in the thread that calls this; returns what tells the event loop how it ended."""
        settle: Callable[[Any], None] = self.set_result
        try:
            ended: Any = self._context.run(self._work, self._stop)
        except BaseException as error:  # noqa: BLE001 - it is raised where the outcome is awaited
            settle, ended = self.set_exception, error
        return partial(self.get_loop().call_soon_threadsafe, self._end, settle, ended)

    def _end(self, settle: Callable[[Any], None], ended: Any) -> None:
        if not self.done():  # and someone waits for it
            settle(ended)


class _Thread:
    """A thread that rests between two pieces of work."""

    def __init__(self) -> None:
        self._called = threading.Lock()
        self._called.acquire()
        self._next: list[_Outcome[Any]] = []

    def call(self, outcome: _Outcome[Any]) -> None:
        self._next.append(outcome)
        self._called.release()

    def rest(self) -> _Outcome[Any]:
        self._called.acquire()
        return self._next.pop()


class _Threads:
    """Threads for short pieces of work.

    The one that has rested for the shortest time is called first: what it needs is still in the caches, and no other
    one wakes up. It counts as resting before the event loop hears of its work, so that it is called again at once.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._resting: list[_Thread] = []
        self._waiting: deque[_Outcome[Any]] = deque()
        self._started = 0
        self._own = threading.local()

    def run(self, outcome: _Outcome[Any]) -> None:
        with self._lock:
            if self._resting:
                self._resting.pop().call(outcome)
                return
            if self._started < _MOST or hasattr(self._own, "thread"):  # work that waits for work has to get it
                threading.Thread(target=self._live, name=f"work-{self._started + 1}", daemon=True).start()
                self._started += 1
            self._waiting.append(outcome)

    def finish(self) -> None:
        """Wait until nothing is worked on."""
        while len(self._resting) < self._started:
            time.sleep(_POLL_S)

    def _live(self) -> None:
        this = self._own.thread = _Thread()
        tell: Callable[[], object] | None = None
        while True:
            outcome = self._take(this)
            if tell is not None:
                with suppress(RuntimeError):  # the event loop is closed
                    tell()
            tell = None  # nothing of the work is kept while this rests
            tell = (outcome or this.rest()).work()
            outcome = None

    def _take(self, this: _Thread) -> _Outcome[Any] | None:
        with self._lock:
            if self._waiting:
                return self._waiting.popleft()
            self._resting.append(this)
            return None


_threads = _Threads()


def _begin_anew() -> None:
    """Start with no threads: none of them is in a process that was forked from this one."""
    global _threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(lambda: _threads.finish())  # what is half done at the end of the process is done first
