"""Appending to a session's transcript and events, and putting another transcript in place of the whole one.

Lines are numbered in the statement that appends them, so that an append which never took effect leaves no hole. Each
append has an id, which its first line keeps: given again, after a broken connection or by a caller that does not know
what became of it, it finds itself and does nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal

from amplifierd.session_store.hold import Hold

from .held_sessions import FENCE, HeldSessions
from .lines import EVENT_COLUMNS, MESSAGE_COLUMNS, NEW_EVENTS, NEW_MESSAGES

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
