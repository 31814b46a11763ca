"""What the stored sessions of a tree say about it: how far its events are numbered, and what it used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from amplifierd.session_store.protocol import SessionStore, StoredEvent
from amplifierd.session_store.record import SessionRecord

from .tree_events import UNSTORED
from .uncounted_usage import TURN_BEGUN, TURN_DONE, brought_up, counted_until, last_mark, used_in
from .usage import Usage


@dataclass(frozen=True)
class SessionHistory:
    """A stored session: its record, the events that the record does not count yet, and whether a turn was not ended."""

    record: SessionRecord
    last_seq: int
    uncounted: Sequence[StoredEvent]
    is_in_turn: bool

    @property
    def last_sequence(self) -> int:
        """The number of its last event; after a crash, one that no event can have had."""
        return self.last_seq + (UNSTORED if self.is_in_turn else 0)

    @property
    def used(self) -> Usage:
        """What it used, as a part of its tree."""
        agent = self.record.agent_name if self.record.created_by == "agent" else None
        return (Usage.from_json(self.record.usage) + used_in(self.uncounted)).for_agent(agent)


async def session_history(store: SessionStore, session_id: str) -> SessionHistory:
    record = await store.read(session_id)
    counted = counted_until(record, await store.last_seq(session_id))
    uncounted = await store.read_events(session_id, after_seq=counted)
    latest = last_mark(uncounted)
    if (ended := brought_up(record, uncounted)) is not record:
        record, counted = ended, ended.usage_seq or 0
        uncounted = [event for event in uncounted if int(event.get("seq") or 0) > counted]
    if latest is None and counted:  # a turn is counted before its end is told
        latest = (await store.last_events([session_id], (TURN_BEGUN, TURN_DONE))).get(session_id)
    last_seq = await store.last_seq(session_id)  # after the marks: what is told between the two counts as told
    return SessionHistory(record, last_seq, uncounted, latest is not None and latest["event"] == TURN_BEGUN)


async def last_sequence(store: SessionStore, root_id: str, root: SessionHistory | None = None) -> int:
    """Return the number of the last event of a tree; after a crash, one that no event can have had."""
    return max(member.last_sequence for member in await _members(store, root_id, root))


async def tree_history(store: SessionStore, root_id: str) -> tuple[int, Usage]:
    """Return the number of the last event of a tree, and what the whole tree used."""
    members = await _members(store, root_id)
    return max(member.last_sequence for member in members), sum((member.used for member in members), Usage())


async def _members(store: SessionStore, root_id: str, root: SessionHistory | None = None) -> list[SessionHistory]:
    """Return every session of a tree; its `root` may be known already."""
    below = [await session_history(store, session_id) for session_id in await store.descendants(root_id)]
    return [root or await session_history(store, root_id), *below]
