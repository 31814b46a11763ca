"""The events of a session and of everything below it, as they are stored, in the order of their numbers."""

from __future__ import annotations

from amplifierd.exceptions import SessionNotFoundError
from amplifierd.session_store.protocol import SessionStore, StoredEvent
from amplifierd.sessions.tree_history import last_sequence

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

    async def last_sequence(self) -> int:
        """Return the number of the last event that the whole tree has stored, 0 when there is none."""
        numbers = [0]
        for member in await self._members(self._root_id, always=True):
            try:
                numbers.append(await self._store.last_seq(member))
            except SessionNotFoundError:
                continue
        return max(numbers)

    async def highest_sequence(self) -> int:
        """Return the highest number that an event of the whole tree can have had, also one that was not stored."""
        try:
            return await last_sequence(self._store, self._root_id)
        except SessionNotFoundError:
            return 0

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
