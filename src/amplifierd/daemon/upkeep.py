"""What a daemon removes by itself: sessions that were deleted or ended long ago."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path

from amplifier_core.exceptions import AmplifierError
from amplifier_system.supervisor import Supervisor, cancelled
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.source_cache import measure_cache

logger = logging.getLogger(__name__)

_EVERY_S = 6 * 3600.0


async def _alone(seconds: float) -> bool:
    return True


class Upkeep:
    """Looks through the sessions a few times a day, the first time when the daemon is ready.

    `is_ours` says whether this daemon removes sessions in the next seconds, and no other one that shares them.
    """

    def __init__(self, sessions: Sessions, cache: Path, is_ours: Callable[[float], Awaitable[bool]] = _alone) -> None:
        self._sessions, self._cache, self._is_ours = sessions, cache, is_ours
        self.cache_bytes = 0
        self._running: asyncio.Task[None] | None = None

    def use(self, sessions: Sessions) -> None:
        """Go on with sessions that have other settings."""
        self._sessions = sessions

    def start(self, supervisor: Supervisor) -> None:
        self._running = supervisor.start("upkeep", self._run)

    async def stop(self) -> None:
        await cancelled(self._running)

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except (AmplifierError, OSError) as error:
                logger.warning("old sessions were not removed, or the cache not measured: %s", error)
            await asyncio.sleep(_EVERY_S)

    async def look(self) -> None:
        """Remove what is too old, as the settings say, and measure the cache."""
        if await self._is_ours(_EVERY_S / 2):
            await self._remove_old()
        self.cache_bytes = await measure_cache(self._cache)

    async def _remove_old(self) -> None:
        removed = [*await self._sessions.empty_trash()]
        if self._sessions.runtime.settings.sessions.retention_days is not None:
            removed += await self._sessions.cleanup()
        await self._sessions.runtime.store.tidy()
        if removed:
            logger.info("removed %d old sessions", len(removed))
