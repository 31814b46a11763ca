"""Storing a session that is new: what it begins with in one statement, or in several of one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any

from amplifierd.exceptions import SessionExistsError
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.parts_file import checked_digest
from amplifierd.store.protocol import NewSession
from amplifierd.store.record import now
from amplifierd.store.session_files import document_file_name

from .group_commit import GroupCommit, Row
from .held_sessions import HeldSession, HeldSessions
from .members import Members, fenced
from .session_rows import (
    EVENT_COLUMNS,
    INSERTED,
    INSERTED_VALUES,
    MESSAGE_COLUMNS,
    NEW_EVENTS,
    NEW_MESSAGES,
    event_values,
    json_text,
    message_values,
    row_values,
)

_CREATE = f"""
WITH own AS (
    SELECT address FROM members WHERE member_id = %(own)s AND state IN ('active', 'draining')
), created AS (
    INSERT INTO sessions ({INSERTED}, deleted_at) SELECT {INSERTED_VALUES}, %(deleted_at)s
    WHERE (%(own)s::text IS NULL OR EXISTS (SELECT FROM own))
    AND NOT EXISTS (SELECT FROM sessions WHERE session_id = %(session_id)s AND deleted_at = %(deleted_at)s::text)
    ON CONFLICT (session_id) WHERE deleted_at IS NULL DO NOTHING RETURNING number AS session
), a AS (
    INSERT INTO holds SELECT session, %(epoch)s, %(holder)s::json, %(own)s, %(since)s FROM created
), b AS (
    INSERT INTO plans SELECT session, number - 1, body FROM created,
    unnest(%(plans)s::text[]) WITH ORDINALITY AS new (body, number)
), c AS (
    INSERT INTO messages (session, line, {MESSAGE_COLUMNS})
    SELECT session, number, {MESSAGE_COLUMNS} FROM created, {NEW_MESSAGES}
), d AS (
    INSERT INTO events (session, line, {EVENT_COLUMNS})
    SELECT session, number, {EVENT_COLUMNS} FROM created, {NEW_EVENTS}
), e AS (
    INSERT INTO documents SELECT session, name, body FROM created,
    unnest(%(document_names)s::text[], %(documents)s::text[]) AS new (name, body)
), f AS (
    INSERT INTO parts SELECT session, digest, content FROM created,
    unnest(%(digests)s::text[], %(parts)s::bytea[]) AS new (digest, content)
)
SELECT coalesce((SELECT session FROM created), (
    SELECT number FROM sessions JOIN holds ON session = number
    WHERE session_id = %(session_id)s AND deleted_at IS NULL
    AND (since, member_id, holder::text) IS NOT DISTINCT FROM (%(since)s, %(own)s, %(holder)s::json::text)
)), (SELECT count(*) FROM own), (SELECT address FROM own)
"""
_MORE_MESSAGES = f"""
INSERT INTO messages (session, line, {MESSAGE_COLUMNS})
SELECT %(session)s, %(before)s + number, {MESSAGE_COLUMNS} FROM {NEW_MESSAGES} ON CONFLICT (session, line) DO NOTHING
"""
_MORE_EVENTS = f"""
INSERT INTO events (session, line, {EVENT_COLUMNS})
SELECT %(session)s, %(before)s + number, {EVENT_COLUMNS} FROM {NEW_EVENTS} ON CONFLICT (session, line) DO NOTHING
"""
_PART = 200  # messages or events that are in memory at a time
_HELD, _FREE = 1, 0  # the epochs with which sessions begin


class Creation:
    """Stores new sessions; used in the database's event loop only."""

    def __init__(self, members: Members, sessions: HeldSessions, writes: GroupCommit) -> None:
        self._members, self._sessions, self._writes = members, sessions, writes

    async def create(self, new: NewSession, values: Mapping[str, Any], holder: Holder) -> Hold:
        """Store a session, given with its values, and hold it."""
        own, since, record = await self._members.require(), now(), new.record
        held = {"own": own, "holder": json.dumps(holder.facts()), "epoch": _HELD, "since": since, "deleted_at": None}
        number, is_member, address = await self._execute(new, {**values, **held})
        if not is_member:
            raise fenced()
        if number is None:
            raise _exists(record.session_id)
        hold = Hold(record.session_id, holder, _HELD, since, own, address)
        self._sessions.note(HeldSession(number, hold, record))
        return hold

    async def add(self, new: NewSession, values: Mapping[str, Any]) -> None:
        """Store a session that no one holds."""
        if await self._add(new, values, deleted_at=None) is None:
            raise _exists(new.record.session_id)

    async def add_trashed(self, new: NewSession, values: Mapping[str, Any], deleted_at: str) -> None:
        """Store a session in the trash, unless it is there."""
        await self._add(new, values, deleted_at=deleted_at)

    async def _add(self, new: NewSession, values: Mapping[str, Any], *, deleted_at: str | None) -> int | None:
        free = {"own": None, "holder": None, "epoch": _FREE, "since": now(), "deleted_at": deleted_at}
        number, *_ = await self._execute(new, {**values, **free})
        return None if number is None else int(number)

    async def _execute(self, new: NewSession, values: Mapping[str, Any]) -> Row:
        is_long = _PART in (len(values["messages"]), len(values["events"]))
        further = partial(_further, new) if is_long else None
        return await self._writes.execute(_CREATE, values, size=_size(values), further=further)


def creation_values(new: NewSession) -> dict[str, Any]:
    """Return what is stored of a new session; of its messages and events, the first ones.

    Raises:
        ValueError: there is something in it that cannot be stored, or a document or a part is misnamed.
    """
    for name in new.documents:
        document_file_name(name)
    return {
        **row_values(new.record),
        "plans": [json_text(plan) for plan in (new.plan, *new.archived_plans)],
        **message_values([*islice(new.messages, _PART)]),
        **event_values([*islice(new.events, _PART)]),
        "document_names": list(new.documents),
        "documents": [json_text(value) for value in new.documents.values()],
        "digests": [checked_digest(digest) for digest in new.parts],
        "parts": list(new.parts.values()),
    }


def _further(new: NewSession) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what stores the messages and events after the first ones, and raise what `creation_values` raises."""
    messages, events = islice(new.messages, _PART, None), islice(new.events, _PART, None)
    before = _PART
    while part := [*islice(messages, _PART)]:
        yield _MORE_MESSAGES, {**message_values(part), "before": before}
        before += len(part)
    before = _PART
    while part := [*islice(events, _PART)]:
        yield _MORE_EVENTS, {**event_values(part), "before": before}
        before += len(part)


def _size(values: Mapping[str, Any]) -> int:
    return sum(len(text) for name in ("messages", "events", "documents", "parts") for text in values[name])


def _exists(session_id: str) -> SessionExistsError:
    return SessionExistsError(f"there is already a session {session_id!r} in the store", hint="choose another id")
