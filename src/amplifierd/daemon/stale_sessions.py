"""Sessions learn that their profile has a newer build than the one they run; they go on with their own."""

from __future__ import annotations

import asyncio
import logging

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import start_task
from amplifierd.builds.home_profiles import Profiles
from amplifierd.identifiers import ProfileId
from amplifierd.live_sessions import LiveSessions
from amplifierd.sessions.home_sessions import Sessions

logger = logging.getLogger(__name__)

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
            page = await asyncio.to_thread(self._sessions.list, None, **wanted)
            for record in page.sessions:
                if not record.stale and record.build_id not in (None, build.build_id):
                    await self._mark(record.session_id, build.build_id)
            offset += _AT_A_TIME
            has_more = offset < page.total

    async def _mark(self, session_id: str, newer_build: str) -> None:
        try:
            await self._live.perform(session_id, "mark_stale", newer_build=newer_build)
        except (AmplifierError, OSError) as error:
            logger.info("session %s does not learn of its newer build: %s", session_id, error)
