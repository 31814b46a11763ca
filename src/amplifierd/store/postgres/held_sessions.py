"""What this process knows of the sessions that it holds: no other process writes them, so it need not ask each time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import AsyncConnection

from amplifier_system.tasks import start_task
from amplifierd.exceptions import SessionError, SessionNotFoundError, StoreUnavailableError
from amplifierd.store.hold import Hold, lost
from amplifierd.store.record import SessionRecord

from .database import Database
from .group_commit import GroupCommit, Row
from .session_rows import record_of

_SELECT = """
SELECT number, record
FROM sessions JOIN holds ON session = number
WHERE session_id = %s AND deleted_at IS NULL AND epoch = %s AND since = %s AND member_id = %s AND holder IS NOT NULL
"""

FENCE = """
held AS (
    SELECT holds.session FROM holds JOIN members USING (member_id)
    WHERE holds.session = %(session)s AND epoch = %(epoch)s AND since = %(since)s AND holder IS NOT NULL
    AND members.member_id = %(member_id)s AND members.state IN ('active', 'draining')
    FOR SHARE OF holds
)
"""
"""Has one row if a hold is the valid one, and keeps it valid until the statement it stands in has taken effect.

After a failover to a server that lacks what was committed last, numbers and epochs are given a second time; `since` and
the member tell the two apart.
"""


@dataclass
class HeldSession:
    """A session that this process holds: the number of its rows, and its record."""

    number: int
    hold: Hold
    record: SessionRecord

    @property
    def fence(self) -> dict[str, Any]:
        hold = self.hold
        return {"session": self.number, "epoch": hold.epoch, "since": hold.since, "member_id": hold.member_id}


class HeldSessions:
    """The sessions that this process holds; used in the database's event loop only."""

    def __init__(self, database: Database, writes: GroupCommit) -> None:
        self._database, self._writes = database, writes
        self._known: dict[str, HeldSession] = {}
        self._loading: dict[Hold, asyncio.Task[HeldSession]] = {}

    def note(self, held: HeldSession) -> None:
        self._known[held.hold.session_id] = held

    def forget(self, session_id: str) -> None:
        """Ask again before the next write: the session is not held any more, or it is not known what was written."""
        self._known.pop(session_id, None)

    async def get(self, hold: Hold) -> HeldSession:
        """Return what is known of a session under its hold.

        Raises:
            HoldLostError: the hold is not the valid one.
            SessionNotFoundError: there is no such session any more.
        """
        known = self._known.get(hold.session_id)
        if known is not None and facts_of(known.hold) == facts_of(hold):
            return known
        if hold not in self._loading:
            self._loading[hold] = start_task(self._load(hold))
        try:
            return await asyncio.shield(self._loading[hold])
        finally:
            self._loading.pop(hold, None)

    async def _load(self, hold: Hold) -> HeldSession:
        async def select(connection: AsyncConnection) -> HeldSession | None:
            found = await connection.execute(_SELECT, [hold.session_id, *facts_of(hold)])
            row = await found.fetchone()
            if row is None:
                return None
            number, body = row
            return HeldSession(number, hold, record_of(body, hold.session_id))

        held = await self._database.run(select)
        if held is None:
            raise await self.refused(hold)
        self.note(held)
        return held

    async def write(self, held: HeldSession, statement: str, values: Mapping[str, Any], *, size: int = 0) -> Row:
        """Give a statement whose answer begins with how many valid holds there are; returns the rest of it.

        Raises:
            HoldLostError: the hold is not the valid one; nothing was written.
            SessionNotFoundError: there is no such session any more.
            StoreUnavailableError: the database is away; an `OutcomeUnknownError` if it went during the write.
        """
        try:
            is_held, *rest = await self._writes.execute(statement, {**held.fence, **values}, size=size)
        except StoreUnavailableError:
            self.forget(held.hold.session_id)
            raise
        if not is_held:
            raise await self.refused(held.hold)
        return tuple(rest)

    async def refused(self, hold: Hold) -> SessionError:
        """Return why a write under a hold had no effect."""
        self.forget(hold.session_id)

        async def select(connection: AsyncConnection) -> bool:
            found = await connection.execute(
                "SELECT EXISTS (SELECT FROM sessions WHERE session_id = %s AND deleted_at IS NULL)", [hold.session_id]
            )
            row = await found.fetchone()
            return row is not None and bool(row[0])

        return lost(hold) if await self._database.run(select) else not_found(hold.session_id, str(self._database))


def facts_of(hold: Hold) -> tuple[int, str, str | None]:
    """Return what tells a hold of a session from every other one."""
    return hold.epoch, hold.since, hold.member_id


def not_found(session_id: str, where: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"there is no session {session_id!r} in {where}", hint="list the sessions there are")
