"""Appending to a session's transcript and events, and putting another transcript in place of the whole one.

Lines are numbered here. Where an append is given again after a broken connection, the line under its first number says
whether the first time took effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifierd.exceptions import StoreUnavailableError
from amplifierd.session_store.hold import Hold

from .held_sessions import FENCE, HeldSession, HeldSessions, Lines
from .lines import EVENT_COLUMNS, MESSAGE_COLUMNS, NEW_EVENTS, NEW_MESSAGES

_ATTEMPTS = 5


def _append(table: str, columns: str, new: str) -> str:
    return f"""
    WITH {FENCE}, there AS (
        SELECT body FROM {table} WHERE session = %(session)s AND line = %(line)s
    ), put AS (
        INSERT INTO {table} SELECT session, %(line)s + number - 1, {columns} FROM held, {new}
        WHERE NOT EXISTS (SELECT FROM there)
    )
    SELECT (SELECT count(*) FROM held), (SELECT body FROM there)
    """


_APPEND: Mapping[Lines, str] = {
    "messages": _append("messages", MESSAGE_COLUMNS, NEW_MESSAGES),
    "events": _append("events", EVENT_COLUMNS, NEW_EVENTS),
}
_REPLACE = f"""
WITH {FENCE}, gone AS (
    DELETE FROM messages USING held WHERE messages.session = held.session AND line < %(line)s
), put AS (
    INSERT INTO messages SELECT session, %(line)s + number - 1, {MESSAGE_COLUMNS} FROM held, {NEW_MESSAGES}
    ON CONFLICT DO NOTHING
)
SELECT (SELECT count(*) FROM held)
"""


class Appends:
    """Appends lines in the order in which it is asked to; used in the database's event loop only."""

    def __init__(self, sessions: HeldSessions) -> None:
        self._sessions = sessions

    async def append(self, hold: Hold, lines: Lines, values: Mapping[str, list[Any]]) -> None:
        bodies = values[lines]
        for _ in range(_ATTEMPTS):
            held = await self._sessions.get(hold)
            (there,) = await self._write(held, lines, _APPEND[lines], values)
            if there in (None, bodies[0]):
                return
            self._sessions.forget(hold.session_id)
        raise StoreUnavailableError(
            f"session {hold.session_id!r} is written from two places of one process at once",
            hint="use one store for both",
        )

    async def replace_messages(self, hold: Hold, values: Mapping[str, list[Any]]) -> None:
        await self._write(await self._sessions.get(hold), "messages", _REPLACE, values)

    async def _write(
        self, held: HeldSession, lines: Lines, statement: str, values: Mapping[str, list[Any]]
    ) -> tuple[Any, ...]:
        line = held.last[lines] + 1
        held.last[lines] += len(values[lines])
        size = sum(map(len, values[lines]))
        return await self._sessions.write(held, statement, {**values, "line": line}, size=size)
