"""The worker processes of a daemon: which one takes a session, when another is started, and when one ends."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from amplifierd.exceptions import NotReadyError
from amplifierd.home import Home

from .json_rpc import Hear
from .worker_process import WorkerProcess

logger = logging.getLogger(__name__)

_BUSY = 2
"""With so much to do in a worker, another one is started for the same modules, as long as there are cores for it."""

_MANY = 8
"""With so many sessions, too: they stay where they are, and one day several of them have something to do."""

_FIRST_S = 1.0


class WorkerPool:
    """Has a worker for everything that sessions run, and one spare, so that no first turn waits for an interpreter."""

    def __init__(
        self, home: Home, hears: Callable[[], Mapping[str, Hear]], at_end: Callable[[WorkerProcess], None]
    ) -> None:
        self._home, self._hears, self._at_end = home, hears, at_end
        self._workers: list[WorkerProcess] = []
        self._first: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[WorkerProcess] | None = None
        self._choosing: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._is_stopped = False
        self._cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1

    @property
    def workers(self) -> tuple[WorkerProcess, ...]:
        return tuple(self._workers)

    def begin(self) -> None:
        """Have a first spare, once the daemon itself has come up."""
        self._first = asyncio.get_running_loop().call_later(_FIRST_S, self.prepare)

    def prepare(self) -> None:
        """Have a spare soon."""
        if self._starting is None and not self._is_stopped:
            self._starting = asyncio.create_task(self._start())

    async def take(self, serves: str) -> WorkerProcess:
        """Return the worker that the next session of a kind is loaded in, with one more to load; the caller counts it.

        Raises:
            NotReadyError: the pool is stopped, or no process can be started.
        """
        async with self._choosing[serves]:
            worker = self._choose(serves) or await self._take_spare(serves)
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
        return None if is_full and len(usable) < self._cores else best

    async def _take_spare(self, serves: str) -> WorkerProcess:
        while True:
            if self._is_stopped:
                raise NotReadyError("the daemon is stopping", hint="try again when it is back")
            self.prepare()
            assert self._starting is not None
            starting = self._starting
            try:
                worker = await asyncio.shield(starting)
            except (OSError, TimeoutError) as error:
                raise NotReadyError(f"no worker process can be started: {error}") from error
            finally:
                if starting.done() and self._starting is starting and (starting.cancelled() or starting.exception()):
                    self._starting = None
            if self._starting is not starting:
                continue  # another one was faster
            self._starting = None
            self.prepare()
            if worker.is_over:
                continue
            worker.serves = serves
            logger.info("worker %d serves %s", worker.pid, serves)
            return worker

    async def _start(self) -> WorkerProcess:
        worker = await WorkerProcess.start(self._home, self._hears, self._ended)
        self._workers.append(worker)
        return worker

    def _ended(self, worker: WorkerProcess) -> None:
        if worker in self._workers:
            self._workers.remove(worker)
        if worker.serves is None and self._starting is not None and self._starting.done():
            self._starting = None
            self.prepare()
        self._at_end(worker)

    async def retire(self, worker: WorkerProcess) -> None:
        """End a worker that has nothing to do any more."""
        worker.is_retiring = True
        await worker.stop()

    async def stop(self, grace_s: float) -> None:
        """End every worker; none is started any more."""
        self._is_stopped = True
        if self._first is not None:
            self._first.cancel()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.gather(self._starting, return_exceptions=True)
        begun = time.monotonic()
        await asyncio.gather(*(worker.stop(grace_s) for worker in self.workers))
        logger.info("all workers ended after %.1f s", time.monotonic() - begun)
