"""What becomes of the collections and profiles of a home, for clients that watch all events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from amplifier_foundation.sources import ProgressEvent
from amplifierd.builds.staleness import ProfileStatus

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
            told = {"profile_id": str(profile.profile_id), "status": profile.status, "reasons": list(profile.codes)}
            self._tell("profile:stale", told)
