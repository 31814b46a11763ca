"""An event loop whose time is made up: when nothing is left to do, it is at once the moment of the next timer.

Everything belongs to a process. Those of one process come in their order, as in any event loop; which process is next
is drawn. A process can stand still for a while, or be gone from one step to the next, whatever it was about to do.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from amplifier_system import tasks

_STEP_S = 2e-5
"""How long each step takes."""


class Process:
    """What runs together, and ends together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[_Handle] = deque()
        self.is_paused = self.is_gone = False

    def __repr__(self) -> str:
        return self.name


OWN: ContextVar[Process | None] = ContextVar("process", default=None)
"""The process to which the present code belongs; none belongs to the simulation itself."""


class Stuck(Exception):
    """Nothing will ever happen again."""


class _Handle:
    """Something that is called soon, or at a moment; what `asyncio.Handle` is, as far as it is used."""

    __slots__ = ("args", "callback", "context", "is_cancelled", "moment", "process")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: Context, process: Process, moment: float
    ) -> None:
        self.callback, self.args, self.context, self.process = callback, args, context, process
        self.moment, self.is_cancelled = moment, False

    def cancel(self) -> None:
        self.is_cancelled, self.args = True, ()

    def cancelled(self) -> bool:
        return self.is_cancelled

    def when(self) -> float:
        return self.moment


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in an order that `chance` draws; `on_step` is called after each with the process it was of."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance, self._now = chance, 0.0
        self._itself = Process("simulation")
        self._queued: dict[Process, None] = {}
        self._timers: list[tuple[float, int, _Handle]] = []
        self._numbers = count()
        self._made: list[asyncio.Task[Any]] = []
        self.steps = 0
        self.on_step: Callable[[Process], None] = lambda process: None
        self.set_exception_handler(lambda loop, context: None)  # of tasks whose outcome no one asks for

    def time(self) -> float:
        return self._now

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=self, name=name, context=context)
        self._made.append(task)
        return task

    def call_soon(  # type: ignore[override] # its handles are our own
        self, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        if context is None:
            context = copy_context()
        handle = _Handle(callback, args, context, context.get(OWN) or self._itself, 0.0)
        self._add(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment] # there are no other threads

    def call_at(  # type: ignore[override] # its handles are our own
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        if context is None:
            context = copy_context()
        handle = _Handle(callback, args, context, context.get(OWN) or self._itself, when)
        heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def call_later(  # type: ignore[override] # its handles are our own
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _add(self, handle: _Handle) -> None:
        process = handle.process
        if process.is_gone:
            return
        process.ready.append(handle)
        if not process.is_paused:
            self._queued[process] = None

    def pause(self, process: Process) -> None:
        """Have a process do nothing for a while; its timers go on."""
        process.is_paused = True
        self._queued.pop(process, None)

    def resume(self, process: Process) -> None:
        process.is_paused = False
        if process.ready:
            self._queued[process] = None

    def end(self, process: Process) -> None:
        """Have a process do nothing any more."""
        process.is_gone = True
        process.ready.clear()
        self._queued.pop(process, None)

    def gather_up(self) -> None:
        """End every task where it is, so that nothing of this loop is left; what is cleaned up meanwhile may fail."""
        asyncio.events._set_running_loop(self)
        try:
            for task in self._made:
                if not task.done():
                    task._log_destroy_pending = False  # type: ignore[attr-defined] # that is how it ends
                    with suppress(Exception):
                        task.get_coro().close()  # type: ignore[union-attr] # it is a coroutine's
        finally:
            asyncio.events._set_running_loop(None)
        tasks._running.difference_update(self._made)  # they will never be done, and would be kept for ever
        self._made.clear()
        self._queued.clear()
        self._timers.clear()
        self.close()

    def _run_once(self) -> None:
        queued, timers = self._queued, self._timers
        while not self._stopping:
            now = self._now
            while timers and timers[0][0] <= now:
                timer = heappop(timers)[2]
                if not timer.is_cancelled:
                    self._add(timer)
            if not queued:
                self._go_on()
                continue
            process = next(iter(queued)) if len(queued) == 1 else self._draw()
            handle = process.ready.popleft()
            if not process.ready:
                del queued[process]
            if not handle.is_cancelled:
                self._now = now + _STEP_S
                self.steps += 1
                handle.context.run(handle.callback, *handle.args)
                self.on_step(process)

    def _go_on(self) -> None:
        """Let it be the moment of the next timer."""
        timers = self._timers
        while timers and timers[0][2].is_cancelled:
            heappop(timers)
        if not timers:
            raise Stuck
        self._now = timers[0][0]

    def _draw(self) -> Process:
        return [*self._queued][int(self._chance.random() * len(self._queued))]

    def _write_to_self(self) -> None:
        pass

    def _process_events(self, event_list: object) -> None:
        pass

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> Any:
        """Run it here and now: in a simulation nothing takes time by itself."""
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - it is for whoever waits
            future.set_exception(error)
        return future
