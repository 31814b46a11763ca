"""Where trees of sessions are at the moment: which member holds one, and when that changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import beat
from amplifierd.store.record import NOWHERE, TreePlace

from .destination import Destination

logger = logging.getLogger(__name__)

_LOOK_S = 1.0
"""How often trees that are watched are looked at, even without news of a change."""

_MOMENT_S = 0.05
"""Changes that come together are looked at together."""


FindPlaces = Callable[[Collection[str]], Awaitable[Mapping[str, TreePlace]]]


def daemon_at(place: TreePlace, *, beside: str) -> Destination | None:
    """Return the daemon that holds a tree, unless it is the one with that id."""
    if not place.is_live or place.member_id in (None, beside) or place.address is None:
        return None
    return Destination(place.member_id, place.address)


class WatchedTree:
    """A tree whose place someone wants to be told of."""

    def __init__(self, root_id: str, place: TreePlace) -> None:
        self.root_id, self.place = root_id, place
        self._has_changed = asyncio.Event()

    def move(self, place: TreePlace) -> None:
        if place != self.place:
            self.place = place
            self._has_changed.set()

    def end(self) -> None:
        """Wake those who wait: the tree is no longer followed."""
        self._has_changed.set()

    async def changed(self) -> TreePlace:
        """Wait until the place has changed since this was last asked."""
        await self._has_changed.wait()
        self._has_changed.clear()
        return self.place


class SessionLocations:
    """Finds trees, and follows those that are watched with one question for all of them, until it `is_closed`."""

    def __init__(self, find: FindPlaces) -> None:
        self._find = find
        self._watched: dict[str, dict[WatchedTree, None]] = {}
        self._woken = asyncio.Event()
        self.is_closed = False

    async def find(self, root_id: str) -> TreePlace:
        """Return where a tree is now."""
        return (await self._find([root_id])).get(root_id, NOWHERE)

    @contextmanager
    def watching(self, root_id: str, place: TreePlace) -> Iterator[WatchedTree]:
        """Follow a tree that was found at a place, while the block runs."""
        watched = WatchedTree(root_id, place)
        self._watched.setdefault(root_id, {})[watched] = None
        try:
            yield watched
        finally:
            others = self._watched[root_id]
            del others[watched]
            if not others:
                del self._watched[root_id]

    def close(self) -> None:
        """Follow nothing any more; who watches is told."""
        self.is_closed = True
        for watched in (one for trees in self._watched.values() for one in trees):
            watched.end()

    def wake(self) -> None:
        """Look again: something has changed."""
        self._woken.set()

    async def run(self) -> None:
        """Look after what is watched until this is cancelled."""
        while True:
            beat()
            try:
                await asyncio.wait_for(self._woken.wait(), _LOOK_S)
            except TimeoutError:
                pass
            else:
                await asyncio.sleep(_MOMENT_S)
            self._woken.clear()
            try:
                await self.look()
            except (AmplifierError, OSError) as error:
                logger.warning("it is not known where sessions are: %s", error)

    async def look(self) -> None:
        """Look at everything that is watched."""
        roots = tuple(self._watched)
        found = await self._find(roots) if roots else {}
        for root_id in roots:
            for watched in tuple(self._watched.get(root_id, ())):
                watched.move(found.get(root_id, NOWHERE))
