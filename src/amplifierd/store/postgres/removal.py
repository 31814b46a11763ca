"""Deleting sessions: for good, or into the trash, from which they can be brought back."""

from __future__ import annotations

from psycopg import AsyncConnection

from amplifierd.exceptions import SessionExistsError, SessionNotFoundError
from amplifierd.store.hold import Hold
from amplifierd.store.protocol import TrashedSession
from amplifierd.store.record import now

from .database import Database
from .held_sessions import FENCE, HeldSessions
from .schema import OF_A_SESSION
from .session_rows import record_of

_ROWS_OF_GONE = ", ".join(
    f"gone_{table} AS (DELETE FROM {table} USING gone WHERE {table}.session = gone.number)" for table in OF_A_SESSION
)
_DELETE = f"""
WITH {FENCE}, gone AS (
    DELETE FROM sessions USING held WHERE number = held.session RETURNING number
), {_ROWS_OF_GONE}
SELECT (SELECT count(*) FROM held) + (SELECT count(*) FROM (SELECT) AS once
    WHERE NOT EXISTS (SELECT FROM sessions WHERE number = %(session)s))
"""
_DISCARD = f"""
WITH {FENCE}, gone AS (
    UPDATE sessions SET deleted_at = %(deleted_at)s FROM held WHERE number = held.session RETURNING number
), freed AS (
    UPDATE holds SET holder = NULL, member_id = NULL FROM gone WHERE holds.session = gone.number
)
SELECT (SELECT count(*) FROM held)
    + (SELECT count(*) FROM sessions WHERE number = %(session)s AND deleted_at IS NOT NULL)
"""
_TRASH = """
SELECT session_id, record, deleted_at FROM sessions WHERE deleted_at IS NOT NULL ORDER BY deleted_at DESC, number DESC
"""
_LAST_DELETED = """
SELECT number, deleted_at FROM sessions WHERE session_id = %s AND deleted_at IS NOT NULL
ORDER BY deleted_at DESC, number DESC
"""
_RESTORE = """
WITH back AS (
    UPDATE sessions SET deleted_at = NULL WHERE number = %(number)s AND NOT EXISTS (
        SELECT FROM sessions WHERE session_id = %(session_id)s AND deleted_at IS NULL
    ) RETURNING 1
)
SELECT (SELECT count(*) FROM back) + (SELECT count(*) FROM sessions WHERE number = %(number)s AND deleted_at IS NULL)
"""
_PURGE = f"""
WITH gone AS (
    DELETE FROM sessions WHERE session_id = %(session_id)s AND deleted_at IS NOT NULL
    AND (%(before)s::text IS NULL OR deleted_at < %(before)s) RETURNING number
), {_ROWS_OF_GONE}
SELECT count(*) FROM gone
"""


class Removal:
    """Removes sessions and brings them back; used in the database's event loop only."""

    def __init__(self, database: Database, sessions: HeldSessions) -> None:
        self._database, self._sessions = database, sessions

    async def delete(self, hold: Hold) -> None:
        held = await self._sessions.get(hold)
        await self._sessions.write(held, _DELETE, {})
        self._sessions.forget(hold.session_id)

    async def discard(self, hold: Hold) -> str:
        """Return the moment under which the session is in the trash."""
        held, deleted_at = await self._sessions.get(hold), now()
        await self._sessions.write(held, _DISCARD, {"deleted_at": deleted_at})
        self._sessions.forget(hold.session_id)
        return deleted_at

    async def trash(self) -> tuple[TrashedSession, ...]:
        async def select(connection: AsyncConnection) -> tuple[TrashedSession, ...]:
            rows = await (await connection.execute(_TRASH)).fetchall()
            return tuple(TrashedSession(record_of(body, name), deleted_at) for name, body, deleted_at in rows)

        return await self._database.run(select)

    async def restore(self, session_id: str) -> str:
        """Return the moment at which the session had been deleted."""
        number, deleted_at = await self._last_deleted(session_id)

        async def update(connection: AsyncConnection) -> bool:
            values = {"number": number, "session_id": session_id}
            row = await (await connection.execute(_RESTORE, values)).fetchone()
            return row is not None and bool(row[0])

        if not await self._database.run(update):
            raise SessionExistsError(
                f"there is a session {session_id!r} again, so the deleted one cannot be restored",
                hint="delete that one first",
            )
        return deleted_at

    async def purge(self, session_id: str, before: str | None) -> None:
        await self._last_deleted(session_id)

        async def delete(connection: AsyncConnection) -> None:
            await connection.execute(_PURGE, {"session_id": session_id, "before": before})

        await self._database.run(delete)

    async def _last_deleted(self, session_id: str) -> tuple[int, str]:
        async def select(connection: AsyncConnection) -> tuple[int, str] | None:
            return await (await connection.execute(_LAST_DELETED, [session_id])).fetchone()

        found = await self._database.run(select)
        if found is None:
            raise SessionNotFoundError(f"there is no deleted session {session_id!r}", hint="list the deleted sessions")
        return found
