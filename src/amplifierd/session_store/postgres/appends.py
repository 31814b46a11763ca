"""Appending to a session's transcript and events, and putting another transcript in place of the whole one.

Lines are numbered in the statement that appends them, so that an append which never took effect leaves no hole. Where
one is given again after a broken connection, it finds its first line among those that came after the last one that was
known, and does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifierd.session_store.hold import Hold

from .held_sessions import FENCE, HeldSessions, Lines
from .lines import EVENT_COLUMNS, MESSAGE_COLUMNS, NEW_EVENTS, NEW_MESSAGES

_LOST = 1000
"""After a failover that lost what was committed last, an earlier attempt is looked for among so many lines."""


def _numbered(table: str) -> str:
    """Return what finds the last line of a session, and the first of the new ones if it is stored already."""
    return f"""
    {FENCE}, latest AS (
        SELECT coalesce(max(line), 0) AS line FROM {table} WHERE session = %(session)s
    ), there AS (
        SELECT {table}.line FROM {table}, latest WHERE session = %(session)s AND body = %(first)s
        AND {table}.line > CASE WHEN latest.line < %(known)s THEN latest.line - {_LOST} ELSE %(known)s END
        LIMIT 1
    )
    """


_ANSWER = "SELECT (SELECT count(*) FROM held), (SELECT line FROM latest), (SELECT count(*) FROM there)"


def _append(table: str, columns: str, new: str) -> str:
    return f"""
    WITH {_numbered(table)}, put AS (
        INSERT INTO {table} SELECT held.session, latest.line + number, {columns} FROM held, latest, {new}
        WHERE NOT EXISTS (SELECT FROM there)
    )
    {_ANSWER}
    """


_APPEND: Mapping[Lines, str] = {
    "messages": _append("messages", MESSAGE_COLUMNS, NEW_MESSAGES),
    "events": _append("events", EVENT_COLUMNS, NEW_EVENTS),
}
_REPLACE = f"""
WITH {_numbered("messages")}, gone AS (
    DELETE FROM messages USING held WHERE messages.session = held.session AND NOT EXISTS (SELECT FROM there)
), put AS (
    INSERT INTO messages SELECT held.session, latest.line + number, {MESSAGE_COLUMNS} FROM held, latest, {NEW_MESSAGES}
    WHERE NOT EXISTS (SELECT FROM there)
)
{_ANSWER}
"""


class Appends:
    """Appends lines in the order in which it is asked to; used in the database's event loop only."""

    def __init__(self, sessions: HeldSessions) -> None:
        self._sessions = sessions

    async def append(self, hold: Hold, lines: Lines, values: Mapping[str, list[Any]]) -> None:
        await self._write(hold, lines, _APPEND[lines], values)

    async def replace_messages(self, hold: Hold, values: Mapping[str, list[Any]]) -> None:
        await self._write(hold, "messages", _REPLACE, values)

    async def _write(self, hold: Hold, lines: Lines, statement: str, values: Mapping[str, list[Any]]) -> None:
        held, bodies = await self._sessions.get(hold), values[lines]
        given = {**values, "known": held.last[lines], "first": bodies[0] if bodies else None}
        latest, was_there = await self._sessions.write(held, statement, given, size=sum(map(len, bodies)))
        held.last[lines] = max(held.last[lines], latest + (0 if was_there else len(bodies)))
