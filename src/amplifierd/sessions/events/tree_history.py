"""What the stored sessions of a tree say about it: how far its events go, and what it used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amplifierd.sessions.layers.uncounted_usage import (
    TURN_BEGUN,
    TURN_DONE,
    brought_up,
    counted_until,
    last_mark,
    used_in,
)
from amplifierd.sessions.layers.usage import Usage
from amplifierd.store.cursor import Cursor
from amplifierd.store.protocol import SessionStore, StoredEvent
from amplifierd.store.record import SessionRecord


@dataclass(frozen=True)
class SessionHistory:
    """A stored session: its record, the last of its events, those that the record does not count yet, and whether a
    turn was not ended."""

    record: SessionRecord
    last: Cursor
    uncounted: Sequence[StoredEvent]
    is_in_turn: bool

    @property
    def end(self) -> Cursor:
        """Where its events end; none that comes later has a number that its record counts already."""
        return Cursor.furthest([self.last, Cursor(0, self.record.usage_seq or 0)])

    @property
    def used(self) -> Usage:
        """What it used, as a part of its tree."""
        agent = self.record.agent_name if self.record.created_by == "agent" else None
        return (Usage.from_json(self.record.usage) + used_in(self.uncounted)).for_agent(agent)


async def session_history(store: SessionStore, session_id: str) -> SessionHistory:
    """Return what is known of a session. How far its events go and how its last turn stands are of one moment."""
    record = await store.read(session_id)
    last = await store.last_cursor(session_id)
    counted = counted_until(record, last.seq)
    events = await store.read_events(session_id, after_seq=counted)
    if last_mark(events) is None and counted:  # a turn is counted before its end is told
        mark = (await store.last_events([session_id], (TURN_BEGUN, TURN_DONE))).get(session_id)
        if mark is not None:
            events = await store.read_events(session_id, after_seq=min(counted, Cursor.of_line(mark).seq - 1))
    latest = last_mark(events)
    record = brought_up(record, [event for event in events if Cursor.of_line(event).seq > counted])
    counted = max(counted, record.usage_seq or 0)
    return SessionHistory(
        record,
        Cursor.of_line(events[-1]) if events else last,
        [event for event in events if Cursor.of_line(event).seq > counted],
        latest is not None and latest["event"] == TURN_BEGUN,
    )


async def last_cursor(store: SessionStore, root_id: str, root: SessionHistory | None = None) -> Cursor:
    """Return where the events of a tree end."""
    return Cursor.furthest(member.end for member in await _members(store, root_id, root))


async def tree_history(store: SessionStore, root_id: str) -> tuple[Cursor, Usage]:
    """Return where the events of a tree end, and what the whole tree used."""
    members = await _members(store, root_id)
    return Cursor.furthest(member.end for member in members), sum((member.used for member in members), Usage())


async def _members(store: SessionStore, root_id: str, root: SessionHistory | None = None) -> list[SessionHistory]:
    """Return every session of a tree; its `root` may be known already."""
    below = [await session_history(store, session_id) for session_id in await store.descendants(root_id)]
    return [root or await session_history(store, root_id), *below]
