"""How the profiles of a home stand: looked at in the background, so that no request waits for hashes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from amplifierd.builds.home_profiles import Profiles
from amplifierd.builds.staleness import ProfileStatus


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
