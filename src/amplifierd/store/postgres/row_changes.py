"""Changing what a session says of itself, its plan, its documents and the parts of its requests."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal

from amplifierd.exceptions import StoreUnavailableError
from amplifierd.store.hold import Hold
from amplifierd.store.record import SessionRecord

from .group_commit import Row
from .held_sessions import FENCE, HeldSessions
from .session_rows import CHANGED, EVENT_COLUMNS, MESSAGE_COLUMNS, NEW_EVENTS, NEW_MESSAGES, record_of, row_values

# Appending to a session's transcript and events, and putting another transcript in place of the whole one.
#
# Lines are numbered in the statement that appends them, so that an append which never took effect leaves no hole.
# Each append has an id, which its first line keeps: given again, after a broken connection or by a caller that does
# not know what became of it, it finds itself and does nothing.


Lines = Literal["messages", "events"]


def numbered(table: Lines) -> str:
    """Return what finds the last line of a session, and whether this append was there before."""
    return f"""
    latest AS (
        SELECT coalesce(max(line), 0) AS line FROM {table} WHERE session = %(session)s
    ), there AS (
        SELECT 1 FROM {table} WHERE session = %(session)s AND append_id = %(append_id)s::uuid
    )
    """


def put(table: Lines) -> str:
    """Return what inserts the new lines, after `numbered` and the fence, and up to a condition."""
    columns, new = (MESSAGE_COLUMNS, NEW_MESSAGES) if table == "messages" else (EVENT_COLUMNS, NEW_EVENTS)
    return f"""
    INSERT INTO {table} (session, line, {columns}, append_id)
    SELECT held.session, latest.line + number, {columns}, CASE WHEN number = 1 THEN %(append_id)s::uuid END
    FROM held, latest, {new} WHERE NOT EXISTS (SELECT FROM there)
    """


_IS_HELD = "SELECT (SELECT count(*) FROM held)"
_APPEND: Mapping[Lines, str] = {
    "messages": f"WITH {FENCE}, {numbered('messages')}, put AS ({put('messages')}) {_IS_HELD}",
    "events": f"WITH {FENCE}, {numbered('events')}, put AS ({put('events')}) {_IS_HELD}",
}
_REPLACE = f"""
WITH {FENCE}, {numbered("messages")}, gone AS (
    DELETE FROM messages USING held WHERE messages.session = held.session AND NOT EXISTS (SELECT FROM there)
), put AS ({put("messages")}) {_IS_HELD}
"""


class Appends:
    """Appends lines in the order in which it is asked to; used in the database's event loop only."""

    def __init__(self, sessions: HeldSessions) -> None:
        self._sessions = sessions

    async def append(
        self, hold: Hold, lines: Lines, values: Mapping[str, list[Any]], append_id: str | None = None
    ) -> None:
        """Append lines; an `append_id` belongs to a caller who may give them again."""
        await self._write(hold, lines, _APPEND[lines], values, append_id)

    async def replace_messages(self, hold: Hold, values: Mapping[str, list[Any]]) -> None:
        await self._write(hold, "messages", _REPLACE, values, None)

    async def _write(
        self, hold: Hold, lines: Lines, statement: str, values: Mapping[str, list[Any]], append_id: str | None
    ) -> None:
        held = await self._sessions.get(hold)
        given = {**values, "append_id": append_id or uuid.uuid4().hex}
        await self._sessions.write(held, statement, given, size=sum(map(len, values[lines])))


_CHANGED_ROW = f"""
changed AS (
    UPDATE sessions SET {CHANGED} FROM held WHERE number = held.session AND sessions.revision = %(before)s
    RETURNING number AS session
)"""
_OUTCOME = """
(SELECT count(*) FROM held), (SELECT count(*) FROM changed), (SELECT record FROM sessions WHERE number = %(session)s)
"""
_UPDATE = f"WITH {FENCE}, {_CHANGED_ROW} SELECT {_OUTCOME}"
_SWITCH_PLAN = f"""
WITH {FENCE}, {_CHANGED_ROW}, last AS (
    SELECT coalesce(max(number), 0) AS number FROM plans WHERE session = %(session)s
), archived AS (
    INSERT INTO plans SELECT session, last.number + 1, body FROM changed JOIN plans USING (session), last
    WHERE plans.number = 0
), put AS (
    INSERT INTO plans SELECT session, 0, %(plan)s FROM changed
    ON CONFLICT (session, number) DO UPDATE SET body = excluded.body
), documented AS (
    INSERT INTO documents SELECT session, name, body FROM changed,
    unnest(%(document_names)s::text[], %(documents)s::text[]) AS new (name, body)
    ON CONFLICT (session, name) DO UPDATE SET body = excluded.body
)
SELECT {_OUTCOME}, (SELECT number FROM last)
"""
_PUT_DOCUMENT = f"""
WITH {FENCE}, put AS (
    INSERT INTO documents SELECT session, %(name)s, %(body)s FROM held
    ON CONFLICT (session, name) DO UPDATE SET body = excluded.body
)
SELECT (SELECT count(*) FROM held)
"""
_PUT_PARTS = f"""
WITH {FENCE}, put AS (
    INSERT INTO parts SELECT session, digest, content FROM held,
    unnest(%(digests)s::text[], %(parts)s::bytea[]) AS new (digest, content)
    ON CONFLICT DO NOTHING
)
SELECT (SELECT count(*) FROM held)
"""
_END_TURN = f"""
WITH {FENCE}, {numbered("events")}, changed AS (
    UPDATE sessions SET {CHANGED} FROM held
    WHERE number = held.session AND sessions.revision = %(before)s AND NOT EXISTS (SELECT FROM there)
    RETURNING number AS session
), put AS ({put("events")} AND EXISTS (SELECT FROM changed))
SELECT {_OUTCOME}, (SELECT count(*) FROM there)
"""
_ATTEMPTS = 5


class SessionChanges:
    """Changes sessions; used in the database's event loop only."""

    def __init__(self, sessions: HeldSessions) -> None:
        self._sessions = sessions

    async def update(self, hold: Hold, changes: Mapping[str, Any]) -> SessionRecord:
        record, _ = await self._change(hold, _UPDATE, changes, {})
        return record

    async def end_turn(
        self, hold: Hold, turn_id: str, values: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> SessionRecord:
        """Append the end of a turn and change the record; an end that is there already stays as it is."""
        return (await self._change(hold, _END_TURN, changes, {**values, "append_id": turn_id}))[0]

    async def switch_plan(self, hold: Hold, changes: Mapping[str, Any], values: Mapping[str, Any]) -> int:
        """Return the number of the plan that was archived."""
        _, (last, is_repeated) = await self._change(hold, _SWITCH_PLAN, changes, values)
        return int(last) if is_repeated else int(last) + 1

    async def put_document(self, hold: Hold, name: str, body: str) -> None:
        held = await self._sessions.get(hold)
        await self._sessions.write(held, _PUT_DOCUMENT, {"name": name, "body": body}, size=len(body))

    async def put_parts(self, hold: Hold, parts: Mapping[str, bytes]) -> None:
        held = await self._sessions.get(hold)
        values = {"digests": list(parts), "parts": list(parts.values())}
        await self._sessions.write(held, _PUT_PARTS, values, size=sum(map(len, parts.values())))

    async def _change(
        self, hold: Hold, statement: str, changes: Mapping[str, Any], values: Mapping[str, Any]
    ) -> tuple[SessionRecord, Row]:
        """Change the record as this process knows it; anew if that is not what is stored."""
        for _ in range(_ATTEMPTS):
            held = await self._sessions.get(hold)
            before, record = held.record, held.record.changed(**changes)
            row = row_values(record)
            held.record = record
            is_changed, stored, *rest = await self._sessions.write(
                held, statement, {**values, **row, "before": before.revision}, size=len(row["record"])
            )
            if is_changed or stored == row["record"]:  # the second: by an attempt before this one
                return record, (*rest, not is_changed)
            if statement is _END_TURN and rest[0]:  # an attempt before this one, and the record was changed since
                held.record = record_of(stored, hold.session_id)
                return held.record, (*rest, True)
            self._sessions.forget(hold.session_id)
        raise StoreUnavailableError(
            f"session {hold.session_id!r} is changed from two places of one process at once",
            hint="use one store for both",
        )
