"""What becomes of sessions as a whole: created, changed and deleted, and where a home's events can be watched.

A loaded session tells everything through its own journal. This is for sessions that are not loaded; their events are
numbered and stored like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

from amplifierd.sessions.secret_values import SecretValues
from amplifierd.store.cursor import Cursor
from amplifierd.store.protocol import Hold, Holder, NewSession, SessionStore
from amplifierd.store.record import SessionRecord
from amplifierd.store.whole_session import StoredLines

from .journal import NOT_NESTED, Journal, event_of, place_of, stored_line
from .tree_events import EventSource, TreeEvents
from .tree_history import last_cursor

CREATED, UPDATED, DELETED = "session:created", "session:updated", "session:deleted"
RESTORED = "session:restored"
STATUS = "session:status"


class Announcements:
    """Stores and tells what becomes of the sessions of one home; `events` has all of it, of loaded sessions too."""

    def __init__(self, store: SessionStore, secrets: SecretValues) -> None:
        self.events = EventSource()
        self._store, self._secrets = store, secrets

    def tree(self, root_session_id: str, begin: Cursor) -> TreeEvents:
        """Return the events of a tree from a place on, which the whole home hears."""
        return TreeEvents(root_session_id, begin, beyond=self.events)

    async def create(
        self,
        new: NewSession,
        holder: Holder,
        tree: TreeEvents | None = None,
        *,
        correlation_id: str | None = None,
        nesting: Mapping[str, Any] = NOT_NESTED,
    ) -> Hold:
        """Store a session and hold it. That it was created is the first, or for a copy the latest, of its events.

        `tree` is the one that it is created in; `correlation_id` and `nesting` say for which prompt and call.

        Raises:
            SessionExistsError: the id is taken.
        """
        with self._announced(new, tree, correlation_id, nesting) as found:
            return await self._store.create(found, holder)

    async def add(self, new: NewSession, holder: Holder, tree: TreeEvents | None = None) -> None:
        """Store a session that no one holds, in the same way."""
        with self._announced(new, tree) as found:
            await self._store.add(found, holder)

    @contextmanager
    def _announced(
        self,
        new: NewSession,
        tree: TreeEvents | None,
        correlation_id: str | None = None,
        nesting: Mapping[str, Any] = NOT_NESTED,
    ) -> Iterator[NewSession]:
        """Yield a session with the event that it was created; that is told when it is stored."""
        record = new.record
        tree = tree or self.tree(record.root_id, last_of([new]))
        data = self._secrets.scrubbed(described(record))
        sequence = tree.next_sequence()
        event = event_of(CREATED, data, place_of(record), sequence, correlation_id, nesting)
        with tree.telling(event):
            line = stored_line(event, data, tree.epoch, nesting)
            yield replace(new, events=StoredLines(lambda: chain(new.events, (line,))))

    async def tell(
        self,
        hold: Hold,
        record: SessionRecord,
        *entries: tuple[str, Mapping[str, Any]],
        tree: TreeEvents | None = None,
    ) -> None:
        """Store events of a session that is not loaded, and tell them; `tree` is that of its root if it is loaded."""
        if tree is None:
            tree = self.tree(record.root_id, (await last_cursor(self._store, record.root_id)).resumed(hold.epoch))
        await self.journal(hold, record, tree).write_all(entries)

    def journal(self, hold: Hold, record: SessionRecord, tree: TreeEvents) -> Journal:
        """Return the journal of a session that is not loaded."""
        return Journal(self._store, hold, record, tree, self._secrets)

    async def delete(self, hold: Hold, record: SessionRecord, *, forever: bool = True) -> None:
        """Remove a session, for good or into the trash, and tell it."""
        await (self._store.delete(hold) if forever else self._store.discard(hold))
        self.events.publish(event_of(DELETED, {}, place_of(record), None))


def described(record: SessionRecord) -> dict[str, Any]:
    """Return what is told of a session that was created or restored."""
    return {name: getattr(record, name) for name in ("session_id", "name", "profile_name", "working_dir", "created_by")}


def last_of(sessions: Iterable[NewSession]) -> Cursor:
    """Return where the events end that the sessions of a tree begin with."""
    return Cursor.furthest(Cursor.of_line(event) for session in sessions for event in session.events)


def created_at(new: NewSession) -> Cursor:
    """Return where the event stands that says that a root was created, after those that it begins with."""
    return last_of([new]).next_event()


def change_events(record: SessionRecord, fields: Sequence[str]) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Return the events for fields that were changed while a session was not loaded."""
    updated = (UPDATED, {"fields_changed": sorted(fields), "revision": record.revision})
    return (updated, (STATUS, {"status": record.status, "activity": None})) if "status" in fields else (updated,)
