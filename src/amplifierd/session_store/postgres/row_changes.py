"""Changing what a session says of itself, its plan, its documents and the parts of its requests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifierd.exceptions import StoreUnavailableError
from amplifierd.session_store.hold import Hold
from amplifierd.session_store.record import SessionRecord

from .appends import numbered, put
from .group_commit import Row
from .held_sessions import FENCE, HeldSessions
from .session_rows import CHANGED, record_of, row_values

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
