"""The events of a session and of everything below it, as they are stored, in the order of their numbers."""

from __future__ import annotations

from contextlib import suppress

from amplifierd.exceptions import SessionNotFoundError
from amplifierd.session_store.protocol import Cursor, EventPlace, SessionStore, StoredEvent

from .event_filter import EventFilter
from .published_event import PublishedEvent, stored_event


class StoredTree:
    """Reads what was stored of a session, by default with its descendants; pieces of blocks are not."""

    def __init__(
        self, store: SessionStore, session_id: str, root_id: str, names: EventFilter, *, children: bool = True
    ) -> None:
        self._store, self._session_id, self._root_id = store, session_id, root_id
        self._names, self._children = names, children

    async def between(self, after: int, until: int | None = None) -> list[PublishedEvent]:
        """Return the events after a number, up to another one."""
        lines: list[StoredEvent] = []
        for member in await self._members(self._session_id):
            lines += [line for line in await self._read(member, after) if until is None or line["seq"] <= until]
        lines.sort(key=lambda line: int(line["seq"]))
        return [stored_event(line, self._root_id) for line in lines]

    async def last_cursor(self) -> Cursor:
        """Return where the stored events of the whole tree end; the number is 0 when there is none."""
        cursors: list[Cursor] = []
        for member in await self._members(self._root_id, always=True):
            with suppress(SessionNotFoundError):
                cursors.append(await self._store.last_cursor(member))
        return Cursor.furthest(cursors)

    async def has_lost(self, seen: Cursor) -> bool:
        """Say whether the event that a client has seen is gone: another one has its number, of a later process.

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

    async def _read(self, session_id: str, after: int) -> list[StoredEvent]:
        try:
            lines = await self._store.read_events(session_id, after_seq=after)
        except SessionNotFoundError:
            return []
        return [line for line in lines if isinstance(line.get("seq"), int) and self._names.passes(str(line["event"]))]
