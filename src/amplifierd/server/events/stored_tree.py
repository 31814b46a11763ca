"""The events of a session and of everything below it, as they are stored, in the order of their numbers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from amplifier_sessions.event_page import EventPage, EventPlace, merged_events, number_of
from amplifierd.exceptions import SessionNotFoundError
from amplifierd.store.protocol import Cursor, SessionStore, StoredEvent

from .published_event import EventFilter, PublishedEvent, stored_event

_AT_ONCE = 100


class StoredTree:
    """Reads what was stored of a session, by default with its descendants; pieces of blocks are not."""

    def __init__(
        self, store: SessionStore, session_id: str, root_id: str, names: EventFilter, *, children: bool = True
    ) -> None:
        self._store, self._session_id, self._root_id = store, session_id, root_id
        self._names, self._children = names, children

    async def parts(self, after: int, until: int | None = None) -> AsyncGenerator[list[PublishedEvent], None]:
        """Yield the events after a number, up to another one, a bounded part at a time."""
        part: list[PublishedEvent] = []
        members = await self._members(self._session_id)
        async with aclosing(merged_events(self._read_page, members, self._place(after_seq=after))) as lines:
            async for line in lines:
                if until is not None and number_of(line) > until:
                    break
                part.append(stored_event(line, self._root_id))
                if len(part) == _AT_ONCE:
                    yield part
                    part = []
        if part:
            yield part

    async def between(self, after: int, until: int) -> list[PublishedEvent]:
        """Return the events after a number, up to another one that is not far away."""
        return [event async for part in self.parts(after, until) for event in part]

    async def last(self, count: int, until: int | None = None) -> list[PublishedEvent]:
        """Return the last events, or the last ones up to a number; nothing before them is read."""
        found: list[StoredEvent] = []
        for member in await self._members(self._session_id):
            found += await self._last_of(member, count, until)
        found.sort(key=number_of)
        return [stored_event(line, self._root_id) for line in found[-count:]]

    async def last_cursor(self) -> Cursor:
        """Return where the stored events of the whole tree end; the number is 0 when there is none."""
        cursors: list[Cursor] = []
        for member in await self._members(self._root_id, always=True):
            with suppress(SessionNotFoundError):
                cursors.append(await self._store.last_cursor(member))
        return Cursor.furthest(cursors)

    async def has_lost(self, seen: Cursor) -> bool:
        """True if the event that a client has seen is gone: another one has its number, of a later process.

        A machine that loses its power may lose the last lines of a file, which clients were shown.
        """
        place = EventPlace(limit=1, after_seq=seen.seq - 1, counted=False)
        for member in await self._members(self._root_id, always=True) if seen.epoch and seen.seq else ():
            with suppress(SessionNotFoundError):
                page = await self._store.read_event_page(member, place)
                found = [Cursor.of_line(line) for line in page.events]
                if any(one.seq == seen.seq and one.epoch > seen.epoch for one in found):
                    return True
        return False

    async def _members(self, session_id: str, *, always: bool = False) -> tuple[str, ...]:
        if not (self._children or always):
            return (session_id,)
        try:
            return (session_id, *await self._store.descendants(session_id))
        except SessionNotFoundError:  # of another application, or deleted at this moment
            return ()

    async def _last_of(self, session_id: str, count: int, until: int | None) -> list[StoredEvent]:
        place, found = self._place(limit=count, from_end=True), list[StoredEvent]()
        while len(found) < count:
            page = await self._read_page(session_id, place)
            found = [line for line in page.events if until is None or number_of(line) <= until] + found
            if not page.has_more:
                break
            place = replace(place, offset=place.offset + len(page.events))
        return found[-count:]

    def _place(self, *, limit: int = _AT_ONCE, **place: Any) -> EventPlace:
        return EventPlace(limit, wants=None if self._names.is_open else self._names.passes, **place)

    async def _read_page(self, session_id: str, place: EventPlace) -> EventPage:
        try:
            return await self._store.read_event_page(session_id, place)
        except SessionNotFoundError:
            return EventPage((), 0, has_more=False)
