"""Looking after workers: one that nothing runs in ends, and so does one that has taken too much memory."""

from __future__ import annotations

import asyncio
import logging
import time

from amplifierd.settings import WorkerSettings

from .placement import Placement
from .worker_process import WorkerProcess

logger = logging.getLogger(__name__)

_INTERVAL_S = 0.5
_FAR = 2
"""A worker with so many times the memory that it may have is not waited for."""


class Supervision:
    """Watches the workers of a placement."""

    def __init__(self, placement: Placement, settings: WorkerSettings) -> None:
        self._placement, self._idle_s = placement, settings.idle_minutes * 60
        self._limit = settings.memory_limit_mb << 20
        self._blocked: set[WorkerProcess] = set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            workers = self._placement.pool.workers
            self._blocked.intersection_update(workers)
            for worker in workers:
                if not worker.is_stopping:
                    self._look_at(worker)

    def _look_at(self, worker: WorkerProcess) -> None:
        self._tell_blocked(worker)
        if worker.rss_bytes > _FAR * self._limit:
            logger.error("worker %d has %d MB of memory and is killed", worker.pid, worker.rss_bytes >> 20)
            self._placement.begin(worker.kill())
        elif worker.rss_bytes > self._limit and not worker.is_retiring:
            logger.warning(
                "worker %d has %d MB of memory: it ends when its turns have ended", worker.pid, worker.rss_bytes >> 20
            )
            worker.is_retiring = True
        if worker.has_work:
            worker.idle_since = time.monotonic()
        if worker.is_retiring:
            self._empty(worker)
        elif time.monotonic() - worker.idle_since > self._idle_s:
            logger.info("worker %d has had nothing to do for %.0f s", worker.pid, self._idle_s)
            self._placement.begin(self._placement.pool.retire(worker))

    def _empty(self, worker: WorkerProcess) -> None:
        """Let the sessions of a worker leave that have nothing to do, and end it after the last one."""
        if not worker.has_work:
            self._placement.begin(self._placement.pool.retire(worker))
            return
        for placed in tuple(self._placement.placed.values()):
            if placed.worker is worker and not placed.is_busy and not placed.is_leaving:
                placed.is_leaving = True
                self._placement.begin(self._placement.unload_idle(placed))

    def _tell_blocked(self, worker: WorkerProcess) -> None:
        if not worker.is_blocked:
            self._blocked.discard(worker)
        elif worker not in self._blocked:
            self._blocked.add(worker)
            logger.warning("worker %d (%s) is blocked: a module keeps its event loop", worker.pid, worker.serves)
