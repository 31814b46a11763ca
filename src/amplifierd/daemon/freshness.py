"""How the profiles of a home stand: looked at in the background, so that nobody waits for hashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from amplifierd.builds.staleness import ProfileStatus
from amplifierd.home import Home


class Freshness:
    """What was last seen of each profile."""

    def __init__(self, home: Home, on_seen: Callable[[ProfileStatus], None]) -> None:
        self._home, self._on_seen = home, on_seen
        self.statuses: dict[str, ProfileStatus] = {}

    async def look(self) -> None:
        """Look at every profile, one after the other; the network is not used."""
        if not self._home.settings.startup.check_on_start:
            return
        for profile in await asyncio.to_thread(self._home.profiles.list):
            status = await self._home.profiles.status(profile.profile_id)
            self.statuses[str(profile.profile_id)] = status
            self._on_seen(status)

    def counted(self) -> dict[str, int]:
        """Return how many profiles there are of each status."""
        return dict(Counter(status.status for status in self.statuses.values()))
