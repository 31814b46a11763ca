"""The worker processes of a daemon: which one takes a session, when another is started, and when one ends."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any
from weakref import WeakValueDictionary

from amplifier_system.tasks import run_to_end, start_task
from amplifierd.exceptions import NotReadyError
from amplifierd.settings import Settings
from amplifierd.store.store_choice import store_modules

from .json_rpc import Hear
from .worker_process import WorkerProcess
from .worker_start import DescribeHome, WorkerStart

logger = logging.getLogger(__name__)

_BUSY = 2
"""With so much to do in a worker, another one is started for the same modules, as long as there are cores for it."""

_MANY = 8
"""With so many sessions, too: they stay where they are, and one day several of them have something to do."""

_SOON_S = 2.0
"""So long after the daemon came up it prepares to start workers; until then it needs the cores itself."""

_LOOK_S = 0.1


class WorkerPool:
    """Has a worker for everything that sessions run.

    When as many serve as may, the one that was not used for longest makes room for another kind of sessions; these wait
    `patience_s` for it.
    """

    def __init__(
        self,
        settings: Settings,
        describe_home: DescribeHome,
        hears: Callable[[], Mapping[str, Hear]],
        at_end: Callable[[WorkerProcess], None],
        patience_s: float,
    ) -> None:
        self._describe_home, self._hears, self._at_end = describe_home, hears, at_end
        self._most, self._patience_s = settings.workers.max_processes, patience_s
        self._workers: list[WorkerProcess] = []
        self._soon: asyncio.TimerHandle | None = None
        self._processes = WorkerStart(further=store_modules(settings.store))
        self._starting: set[asyncio.Task[WorkerProcess]] = set()
        self._choosing: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._promised = self._times_abandoned = 0
        self._is_stopped = False
        self._cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        return tuple(self._workers)

    def use(self, describe_home: DescribeHome) -> None:
        """Start workers for a home as it is now."""
        self._describe_home = describe_home

    def begin(self) -> None:
        """Be prepared to start workers soon."""
        self._soon = asyncio.get_running_loop().call_later(_SOON_S, self._processes.prepare)

    async def take(self, serves: str) -> WorkerProcess:
        """Return the worker that the next session of a kind is loaded in, with one more to load; the caller counts it.

        Raises:
            NotReadyError: the pool is stopped, no process can be started, or all there may be are at work.
        """
        async with self._choosing.setdefault(serves, asyncio.Lock()):
            worker = self._choose(serves)
            if worker is None:
                await self._make_room()
                self._promised += 1
                try:
                    worker = await self._start(serves)
                finally:
                    self._promised -= 1
            worker.loading += 1
            return worker

    def _choose(self, serves: str) -> WorkerProcess | None:
        """Return the worker with the least to do, None when another one should be started."""
        known = [one for one in self._workers if one.serves == serves and one.is_usable]
        usable = [one for one in known if not one.is_blocked] or (known if len(known) > self._cores else [])
        if not usable:
            return None
        best = min(usable, key=lambda one: (one.work, len(one.sessions)))
        is_full = best.work >= _BUSY or len(best.sessions) >= _MANY
        return None if is_full and len(usable) < self._cores and self._has_room() else best

    def _has_room(self) -> bool:
        return len(self._workers) + self._promised < self._most

    async def _make_room(self) -> None:
        """Have one worker less than there may be; the supervision ends the one that is chosen here."""
        deadline = time.monotonic() + self._patience_s
        while not self._has_room():
            if not any(one.is_retiring or one.is_stopping for one in self._workers):
                idle = [one for one in self._workers if not one.work]
                if idle:
                    oldest = min(idle, key=lambda one: one.used_at)
                    oldest.is_retiring = True
                    logger.info("worker %d (%s) makes room for another", oldest.pid, oldest.serves)
            if self._is_stopped or time.monotonic() > deadline:
                raise NotReadyError(
                    f"all {self._most} workers are at work", hint="try again, or raise workers.max_processes"
                )
            await asyncio.sleep(_LOOK_S)

    async def _start(self, serves: str) -> WorkerProcess:
        if self._is_stopped:
            raise _stopping()
        starting = start_task(self._start_process(serves))
        self._starting.add(starting)
        try:
            return await starting
        except (OSError, TimeoutError) as error:
            raise NotReadyError(f"no worker process can be started: {error}") from error
        except asyncio.CancelledError:
            if self._is_stopped:
                raise _stopping() from None
            raise
        finally:
            self._starting.discard(starting)

    async def _start_process(self, serves: str) -> WorkerProcess:
        generation = self._times_abandoned
        worker = await WorkerProcess.start(self._describe_home, serves, self._processes, self._hears, self._ended)
        if generation != self._times_abandoned:  # it would hold sessions for a member that is gone
            worker.is_stopping = True
            await run_to_end(worker.kill())
            raise NotReadyError(f"worker {worker.pid} was started for a member that others fenced", hint="try again")
        self._workers.append(worker)
        logger.info("worker %d serves %s", worker.pid, serves)
        return worker

    def _ended(self, worker: WorkerProcess) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
        self._at_end(worker)

    def retire(self, worker: WorkerProcess) -> Coroutine[Any, Any, None]:
        """Let no further session into a worker that has nothing to do any more; what is returned ends it."""
        worker.is_retiring = True
        return worker.stop()

    async def abandon(self) -> None:
        """End every worker at once, with what is in it, also those that are just being started."""
        self._times_abandoned += 1
        workers = self.workers
        for worker in workers:
            worker.is_stopping = True
        await asyncio.gather(*(worker.kill() for worker in workers))

    async def stop(self, grace_s: float) -> None:
        """End every worker; none is started any more."""
        self._is_stopped = True
        if self._soon is not None:
            self._soon.cancel()
        for starting in self._starting:
            starting.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        begun = time.monotonic()
        await asyncio.gather(*(worker.stop(grace_s) for worker in self.workers))
        await self._processes.close()
        logger.info("all workers ended after %.1f s", time.monotonic() - begun)


def _stopping() -> NotReadyError:
    return NotReadyError("the daemon is stopping", hint="try again when it is back")
