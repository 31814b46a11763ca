"""Who holds which session, and taking one over from a process that is gone.

A hold counts as long as its member has a lease and, where this machine can see its process, that is there. After a time
in which no member reached the database every lease has expired; a member that was away as well does not judge others
before they have had the time of a lease to come back.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import psycopg
from psycopg import AsyncConnection

from amplifier_system.tasks import start_task
from amplifierd.store.hold import Hold, Holder, held
from amplifierd.store.record import TreePlace, now

from .database import Database
from .group_commit import GroupCommit
from .held_sessions import HeldSession, HeldSessions, facts_of, not_found
from .members import LEASE_S, Members, fenced
from .session_rows import record_of

logger = logging.getLogger(__name__)

_LONG_OVER_S = 5 * LEASE_S

_IS_LIVE = """coalesce(
    members.state IN ('active', 'draining') AND (
        members.lease_until > now() OR members.lease_until > now() - %(long_over)s * interval '1 s' AND NOT EXISTS (
            SELECT FROM members own WHERE own.member_id = %(own)s AND own.lease_until > now()
            AND own.unbroken_since < now() - %(lease)s * interval '1 s'
        )
    ), false
)"""
_STATE = f"holds.epoch, holds.holder, holds.since, holds.member_id, members.address, {_IS_LIVE} AS is_live"
_ACQUIRE = f"""
WITH own AS (
    SELECT address FROM members WHERE member_id = %(own)s AND state IN ('active', 'draining')
), wanted AS (
    SELECT number, record FROM sessions WHERE session_id = %(session_id)s AND deleted_at IS NULL
), found AS (
    SELECT holds.session, {_STATE}
    FROM wanted JOIN holds ON session = number LEFT JOIN members USING (member_id) FOR UPDATE OF holds
), taken AS (
    UPDATE holds SET epoch = found.epoch + 1, holder = %(holder)s::json, member_id = %(own)s, since = %(since)s
    FROM found, own WHERE holds.session = found.session AND holds.epoch = found.epoch
    AND (holds.since, holds.member_id, holds.holder::text) IS DISTINCT FROM (%(since)s, %(own)s, %(holder)s::json::text)
    AND (found.holder IS NULL OR NOT found.is_live OR %(take_over)s OR found.epoch = %(gone)s)
    RETURNING holds.epoch, pg_notify('amplifier_holds', %(session_id)s)
)
SELECT number, record, found.epoch, found.holder, found.since, found.member_id, found.address,
    (SELECT epoch FROM taken), (SELECT count(*) FROM own), (SELECT address FROM own)
FROM wanted JOIN found ON found.session = number
"""
_RELEASE = """
WITH freed AS (
    UPDATE holds SET holder = NULL, member_id = NULL FROM sessions
    WHERE session = number AND session_id = %(session_id)s AND deleted_at IS NULL
    AND epoch = %(epoch)s AND since = %(since)s AND member_id = %(member_id)s AND holder IS NOT NULL RETURNING 1
)
SELECT (SELECT pg_notify('amplifier_holds', %(session_id)s) FROM freed)
"""
_FIND = f"""
SELECT {_STATE} FROM sessions JOIN holds ON session = number LEFT JOIN members USING (member_id)
WHERE session_id = %(session_id)s AND deleted_at IS NULL
"""
_HELD = f"""
SELECT session_id, {_STATE} FROM holds JOIN sessions ON session = number LEFT JOIN members USING (member_id)
WHERE holds.holder IS NOT NULL AND deleted_at IS NULL ORDER BY session_id
"""
_PLACES = f"""
SELECT session_id, holds.epoch, holds.member_id, members.address, {_IS_LIVE}
FROM sessions JOIN holds ON session = number LEFT JOIN members USING (member_id)
WHERE session_id = ANY(%(session_ids)s) AND deleted_at IS NULL
"""
_ORPHANED = f"""
SELECT session_id, holds.epoch FROM holds JOIN sessions ON session = number LEFT JOIN members USING (member_id)
WHERE holds.holder IS NOT NULL AND deleted_at IS NULL AND NOT {_IS_LIVE} ORDER BY session_id LIMIT %(most)s
"""
_MOST_ORPHANED = 1000
_END_BLOCKERS = "SELECT pg_terminate_backend(pid) FROM unnest(pg_blocking_pids(%s)) AS pid"
_ATTEMPTS = 3
_STUCK_S = 2.0
"""For so long a write may keep others from a session; it takes thousandths of that."""


class Holds:
    """The holds of a store; used in the database's event loop only."""

    def __init__(self, database: Database, members: Members, sessions: HeldSessions, writes: GroupCommit) -> None:
        self._database, self._members, self._sessions, self._writes = database, members, sessions, writes
        self._given_up: dict[str, Hold] = {}  # that may still stand in the database, since releasing them failed

    async def acquire(self, session_id: str, holder: Holder, *, take_over: bool) -> Hold:
        values = {
            **self._judge(await self._members.require()),
            **{"session_id": session_id, "holder": json.dumps(holder.facts()), "since": now(), "take_over": take_over},
        }
        gone: int | None = None
        for _ in range(_ATTEMPTS):
            row = await self._database.run(partial(self._take, {**values, "gone": gone}))
            if row is None:
                break
            number, body, epoch, *found, taken, is_member, address = row
            if not is_member:
                raise fenced()
            hold = Hold(session_id, holder, taken or epoch, values["since"], values["own"], address)
            current = _hold(session_id, epoch, *found)
            if taken is not None or current == hold:  # an attempt before this one may have succeeded
                self._sessions.note(HeldSession(number, hold, record_of(body, session_id)))
                return hold
            if current is None:  # another process took and freed it while this one waited for the row
                continue
            if current.holder.is_alive() and facts_of(current) != self._given_up_of(session_id):
                raise held(current)
            gone = epoch  # its process is not there any more, and this machine would see it; or this one gave it up
        raise not_found(session_id, str(self._database))

    async def _take(self, values: dict[str, Any], connection: AsyncConnection) -> tuple[Any, ...] | None:
        helping = start_task(self._end_blockers(connection.info.backend_pid, values))
        try:
            return await _one_row(_ACQUIRE, values, connection)
        finally:
            helping.cancel()

    async def _end_blockers(self, pid: int, values: dict[str, Any]) -> None:
        """End the connection of a process that was stopped in the middle of a write, so that its hold can be taken."""
        await asyncio.sleep(_STUCK_S)
        with suppress(psycopg.Error):  # the attempt that waits says so as well
            async with await self._database.connect("takeover") as connection:
                state = await _one_row(_FIND, values, connection)
                if values["take_over"] or state is None or not state[-1]:
                    await connection.execute(_END_BLOCKERS, [pid])
                    logger.warning(
                        "session %s: the process that was writing it has been disconnected", values["session_id"]
                    )

    async def release(self, hold: Hold) -> None:
        self._sessions.forget(hold.session_id)
        self._given_up[hold.session_id] = hold
        values = {"epoch": hold.epoch, "since": hold.since, "member_id": hold.member_id}
        await self._writes.execute(_RELEASE, {"session_id": hold.session_id, **values})
        if self._given_up.get(hold.session_id) is hold:
            del self._given_up[hold.session_id]

    def _given_up_of(self, session_id: str) -> tuple[int, str, str | None] | None:
        given_up = self._given_up.get(session_id)
        return None if given_up is None else facts_of(given_up)

    async def find(self, session_id: str) -> Hold | None:
        """Return the hold of a live process, None when the session is free."""
        values = {**self._judge(self._members.own_id), "session_id": session_id}
        row = await self._database.run(partial(_one_row, _FIND, values))
        if row is None:
            raise not_found(session_id, str(self._database))
        *state, is_live = row
        hold = _hold(session_id, *state)
        return hold if hold is not None and is_live and hold.holder.is_alive() else None

    async def abandoned(self) -> Sequence[str]:
        """Return the sessions that are held by processes which are gone."""

        async def select(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_HELD, self._judge(self._members.own_id))).fetchall()

        return [
            session_id
            for session_id, _, holder, *_, is_live in await self._database.run(select)
            if not (is_live and Holder(**holder).is_alive())
        ]

    async def places(self, session_ids: Collection[str]) -> dict[str, TreePlace]:
        """Return which members hold some sessions, whatever became of the processes by which they do."""
        values = {**self._judge(self._members.own_id), "session_ids": [*session_ids]}
        rows = await self._database.run(partial(_rows, _PLACES, values))
        return {session_id: TreePlace(*place) for session_id, *place in rows}

    async def orphaned(self) -> dict[str, int]:
        """Return sessions that are held by members which are gone, with their epochs; of many, not all at once."""
        values = {**self._judge(self._members.own_id), "most": _MOST_ORPHANED}
        return dict(await self._database.run(partial(_rows, _ORPHANED, values)))

    def _judge(self, own: str | None) -> dict[str, Any]:
        return {"own": own, "lease": LEASE_S, "long_over": _LONG_OVER_S}


def _hold(
    session_id: str, epoch: int, holder: Any, since: str, member_id: str | None, address: str | None
) -> Hold | None:
    return None if holder is None else Hold(session_id, Holder(**holder), epoch, since, member_id, address)


async def _one_row(statement: str, values: dict[str, Any], connection: AsyncConnection) -> tuple[Any, ...] | None:
    return await (await connection.execute(statement, values)).fetchone()


async def _rows(statement: str, values: dict[str, Any], connection: AsyncConnection) -> list[tuple[Any, ...]]:
    return await (await connection.execute(statement, values)).fetchall()
