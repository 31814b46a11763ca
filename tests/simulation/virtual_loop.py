"""An event loop whose time is made up: when nothing is left to do, it is at once the moment of the next timer.

Everything belongs to a process. Those of one process come in their order, as in any event loop; which process is next
is drawn. A process can stand still for a while, or be gone from one step to the next, whatever it was about to do.
"""

from __future__ import annotations

import asyncio
import heapq
from asyncio import events
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from random import Random
from typing import Any

_STEP_S = 2e-5
"""How long each step takes."""

_ROUNDS = 20


class Process:
    """What runs together, and ends together."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ready: deque[events.Handle] = deque()
        self.is_paused = self.is_gone = False

    def __repr__(self) -> str:
        return self.name


OWN: ContextVar[Process | None] = ContextVar("process", default=None)
"""The process to which the present code belongs; none belongs to the simulation itself."""


class Stuck(Exception):
    """Nothing will ever happen again."""


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs callbacks in an order that `chance` draws; `on_step` is called after each with the process it was of."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self._chance, self._now = chance, 0.0
        self._itself = Process("simulation")
        self._queued: dict[Process, None] = {}
        self.steps = 0
        self.on_step: Callable[[Process], None] = lambda process: None
        self.set_exception_handler(self._note)
        self.failure: BaseException | None = None
        self._is_ending = False

    def time(self) -> float:
        return self._now

    def is_stuck(self) -> bool:
        return not self._queued and not self._scheduled

    def _call_soon(self, callback: Any, args: Any, context: Context | None) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    def _add(self, handle: events.Handle) -> None:
        process = handle._context.get(OWN) or self._itself  # type: ignore[attr-defined] # what it runs in
        if self._is_ending:
            process = self._itself
        elif process.is_gone:
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

    def _note(self, loop: object, context: dict[str, Any]) -> None:
        """Keep what a callback raised, which no one else hears of."""
        if "handle" in context:
            self.failure = self.failure or context.get("exception")

    def gather_up(self, most_steps: int = 2_000) -> None:
        """Cancel every task, those of ended processes too, and let them end."""
        self._is_ending = True
        self._queued.clear()
        self._scheduled.clear()
        self._itself.ready.clear()
        self._itself.is_gone = self._itself.is_paused = False
        last = self.steps + most_steps

        async def end() -> None:
            own = asyncio.current_task()
            while (rest := [task for task in asyncio.all_tasks() if task is not own]) and self.steps < last:
                for task in rest:
                    task.cancel()
                for _ in range(_ROUNDS):  # what ends takes a few; to look at all tasks after each costs most of a run
                    await asyncio.sleep(0)

        self.run_until_complete(end())

    def _run_once(self) -> None:
        self._take_due()
        if not self._queued:
            if not self._scheduled:
                raise Stuck
            self._now = max(self._now, self._scheduled[0]._when)
            self._take_due()
            return
        process = self._next()
        handle = process.ready.popleft()
        if not process.ready:
            del self._queued[process]
        if not handle._cancelled:
            self._now += _STEP_S
            self.steps += 1
            handle._run()
            self.on_step(process)

    def _next(self) -> Process:
        if len(self._queued) == 1:
            return next(iter(self._queued))
        number = int(self._chance.random() * len(self._queued))
        return [*self._queued][number]

    def _take_due(self) -> None:
        scheduled = self._scheduled
        while scheduled and (scheduled[0]._cancelled or scheduled[0]._when <= self._now):
            timer = heapq.heappop(scheduled)
            timer._scheduled = False
            if not timer._cancelled:
                self._add(timer)

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        pass

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
