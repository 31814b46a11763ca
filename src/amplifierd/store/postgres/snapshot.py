"""All sessions of a database as they are at one moment, whatever is written meanwhile."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from tempfile import TemporaryFile
from typing import Any

from psycopg import AsyncConnection, IsolationLevel

from amplifierd.exceptions import MountPlanMissingError
from amplifierd.store.json_lines import parse_value
from amplifierd.store.protocol import NewSession
from amplifierd.store.whole_session import StoredLines

from .database import LONG_ATTEMPT_S, Database
from .held_sessions import not_found
from .session_rows import parsed, record_of

_IDS = "SELECT session_id FROM sessions WHERE deleted_at IS NULL ORDER BY session_id"
_SESSION = "SELECT number, record FROM sessions WHERE session_id = %s AND deleted_at IS NULL"
_TRASHED = "SELECT number, record FROM sessions WHERE session_id = %s AND deleted_at = %s"
_MESSAGES = "SELECT line, body FROM messages WHERE session = %s AND line > %s ORDER BY line LIMIT %s"
_EVENTS = "SELECT line, body FROM events WHERE session = %s AND line > %s ORDER BY line LIMIT %s"
_PART = 200  # messages or events that are in memory at a time
_ROWS = {
    "plans": "SELECT body, number FROM plans WHERE session = %s ORDER BY number",
    "documents": "SELECT name, body FROM documents WHERE session = %s ORDER BY name",
    "parts": "SELECT digest, content FROM parts WHERE session = %s ORDER BY digest",
}


class Snapshot:
    """The sessions at the moment at which the snapshot was opened; used from any event loop."""

    def __init__(self, database: Database, connection: AsyncConnection) -> None:
        self._database, self._connection = database, connection

    async def session_ids(self) -> Sequence[str]:
        rows = await self._database.call(_fetch(self._connection, _IDS, []))
        return [session_id for (session_id,) in rows]

    async def read_whole(self, session_id: str) -> NewSession:
        return await self._database.call(read_whole(self._connection, session_id, str(self._database)))


@asynccontextmanager
async def open_snapshot(database: Database) -> AsyncIterator[Snapshot]:
    """Open a snapshot on a connection of its own."""
    connection = await database.call(_open(database))
    try:
        yield Snapshot(database, connection)
    finally:
        await database.finish(connection.close())


async def _open(database: Database) -> AsyncConnection:
    async def attempt() -> AsyncConnection:
        connection = await database.connect("snapshot")
        await connection.execute("SELECT set_config('idle_in_transaction_session_timeout', '0', false)")
        await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        return connection

    return await database.patiently(attempt)


async def read_at_once(database: Database, session_id: str, deleted_at: str | None = None) -> NewSession:
    """Return everything that one session has at this moment; with `deleted_at`, one that is in the trash since then."""

    async def select(connection: AsyncConnection) -> NewSession:
        await connection.set_isolation_level(IsolationLevel.REPEATABLE_READ)
        try:
            async with connection.transaction():
                return await read_whole(connection, session_id, str(database), deleted_at)
        finally:
            await connection.set_isolation_level(None)

    return await database.run(select, attempt_s=LONG_ATTEMPT_S)


async def read_whole(
    connection: AsyncConnection, session_id: str, where: str, deleted_at: str | None = None
) -> NewSession:
    """Return everything that a session has, seen from one transaction."""
    statement, moment = (_SESSION, []) if deleted_at is None else (_TRASHED, [deleted_at])
    found = await _fetch(connection, statement, [session_id, *moment])
    if not found:
        raise not_found(session_id, where)
    ((number, body),) = found
    rows = {name: await _fetch(connection, statement, [number]) for name, statement in _ROWS.items()}
    plans = [parsed(plan) for plan, _ in rows["plans"]]
    if not rows["plans"] or rows["plans"][0][1] != 0:
        raise MountPlanMissingError(
            f"session {session_id!r} has no mount plan", hint="fork the session into another profile"
        )
    return NewSession(
        record_of(body, session_id),
        plans[0],
        messages=await _lines(connection, _MESSAGES, number),
        events=await _lines(connection, _EVENTS, number),
        documents={name: parse_value(value) for name, value in rows["documents"]},
        parts=dict(rows["parts"]),
        archived_plans=plans[1:],
    )


async def _lines(connection: AsyncConnection, statement: str, number: int) -> Collection[dict[str, Any]]:
    """Return the lines of a session; many of them lie in a file without a name, which goes when they are not needed."""
    rows = await _fetch(connection, statement, [number, 0, _PART])
    if len(rows) < _PART:
        return [parsed(body) for _, body in rows]
    with TemporaryFile() as file:
        while rows:
            file.writelines(f"{body}\n".encode() for _, body in rows)
            rows = await _fetch(connection, statement, [number, rows[-1][0], _PART])
        file.flush()
        return StoredLines.in_descriptor(os.dup(file.fileno()))


async def _fetch(connection: AsyncConnection, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, values)).fetchall()
