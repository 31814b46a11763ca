"""What a daemon removes by itself: sessions that were deleted or ended long ago."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.sources import ProgressEvent
from amplifier_system.tasks import Supervisor, cancelled, start_task
from amplifierd.identifiers import ProfileId
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.builds.staleness import ProfileStatus
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.source_cache import measure_cache
from amplifierd.workers.live_sessions import LiveSessions

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


_MEASURED_EVERY_S = 0.25
_LONG_S = 1.0


class LoopLag:
    """Measures again and again how much later than planned the loop comes round."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self._measuring: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure from now on, on the loop that runs."""
        loop = asyncio.get_running_loop()
        self._measuring = loop.call_later(_MEASURED_EVERY_S, self._measure, loop, loop.time() + _MEASURED_EVERY_S)

    def stop(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()

    def _measure(self, loop: asyncio.AbstractEventLoop, planned: float) -> None:
        self.last_s = max(0.0, loop.time() - planned)
        if self.last_s > _LONG_S:
            logger.warning("the event loop was blocked for %.1f s", self.last_s)
        self.start()


class Freshness:
    """What was last seen of each profile."""

    def __init__(self, profiles: Profiles, on_seen: Callable[[ProfileStatus], None]) -> None:
        self._profiles, self._on_seen = profiles, on_seen
        self.statuses: dict[str, ProfileStatus] = {}

    async def look(self) -> None:
        """Look at every profile, one after the other; the network is not used."""
        for profile in await asyncio.to_thread(self._profiles.list):
            status = await self._profiles.status(profile.profile_id)
            self.statuses[str(profile.profile_id)] = status
            self._on_seen(status)

    def counted(self) -> dict[str, int]:
        """Return how many profiles there are of each status."""
        return dict(Counter(status.status for status in self.statuses.values()))


Tell = Callable[[str, Mapping[str, Any]], None]

_ENDS = {
    ("collection", "ready"): ("collection:synced", "collection_id", "synced"),
    ("collection", "failed"): ("collection:synced", "collection_id", "error"),
    ("profile", "ready"): ("profile:compiled", "profile_id", "compiled"),
    ("profile", "failed"): ("profile:compiled", "profile_id", "failed"),
}
"""By what was worked on and how it ended: the event, what it calls the id, and the status it tells."""


class LibraryEvents:
    """Hears how far long work is, from any thread, and tells what has come to its end.

    All clients may watch them; why something failed is told only to those who may see the operation.
    """

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Tell from now on, on the event loop that this is called on."""
        self._loop = asyncio.get_running_loop()

    def hear(self, step: ProgressEvent) -> None:
        """Take note of a step."""
        if self._loop is None or (step.what, step.phase) not in _ENDS:
            return
        name, key, status = _ENDS[step.what, step.phase]
        self._loop.call_soon_threadsafe(self._tell, name, {key: step.ref, "status": status})

    def seen(self, profile: ProfileStatus) -> None:
        """Tell of a profile whose build is not what its sources say any more."""
        if profile.status == "stale":
            data = {"profile_id": str(profile.profile_id), "status": profile.status, "reasons": list(profile.codes)}
            self._tell("profile:stale", data)


_AT_A_TIME = 500


class StaleSessions:
    """Marks the sessions of profiles that were compiled, in the background."""

    def __init__(self, profiles: Profiles, sessions: Sessions, live: LiveSessions) -> None:
        self._profiles, self._sessions, self._live = profiles, sessions, live
        self._marking: set[asyncio.Task[None]] = set()

    def begin(self, profile_id: str) -> None:
        """Look through the sessions of a profile."""
        task = start_task(self._look(ProfileId.parse(profile_id)))
        self._marking.add(task)
        task.add_done_callback(self._marking.discard)

    async def stop(self) -> None:
        for task in self._marking:
            task.cancel()
        await asyncio.gather(*self._marking, return_exceptions=True)

    async def _look(self, profile_id: ProfileId) -> None:
        offset, has_more = 0, True
        build = await asyncio.to_thread(self._profiles.find_build, profile_id)
        while build is not None and has_more:
            wanted = {"profile_name": str(profile_id), "status": "active", "limit": _AT_A_TIME, "offset": offset}
            page = await self._sessions.reader.list(None, **wanted)
            for record in page.sessions:
                if not record.stale and record.build_id not in (None, build.build_id):
                    await self._mark(record.session_id, build.build_id)
            offset += _AT_A_TIME
            has_more = offset < page.total

    async def _mark(self, session_id: str, newer_build: str) -> None:
        try:
            await self._live.acts.mark_stale(session_id, newer_build=newer_build)
        except (AmplifierError, OSError) as error:
            logger.info("session %s does not learn of its newer build: %s", session_id, error)
