"""The processes that share a store, and their leases.

Every process that holds sessions belongs to a member. A member says every two seconds that it is there; by the
database's clock alone is judged who has said so in time. One that has not can be fenced: from that moment on nothing of
it is written any more, whatever it believes itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import psycopg
from psycopg import AsyncConnection, Notify, sql

from amplifier_core import __version__
from amplifier_system.surroundings import new_token
from amplifier_system.tasks import Supervisor
from amplifierd.exceptions import MemberFencedError, StoreUnavailableError
from amplifierd.store.hold import Holder

from .database import Database

logger = logging.getLogger(__name__)

MemberState = Literal["active", "draining", "fenced", "left"]

LEASE_S = 6
RENEWAL_S = 2.0

_LEAVE_S = 3.0

_CHANNEL: Channel = "amplifier_cluster"
_FORGOTTEN_AFTER = "1 day"
_JOIN = """
WITH old AS (
    DELETE FROM members WHERE state IN ('fenced', 'left') AND lease_until < now() - %(forgotten)s::interval
    AND NOT EXISTS (SELECT FROM holds WHERE holds.member_id = members.member_id AND holder IS NOT NULL)
)
INSERT INTO members (member_id, kind, host, pid, started, boot_id, address, version, labels, lease_until)
VALUES (%(member_id)s, %(kind)s, %(host)s, %(pid)s, %(started)s, %(boot_id)s, %(address)s, %(version)s, %(labels)s,
        now() + %(lease)s * interval '1 s')
ON CONFLICT (member_id) DO NOTHING
"""
_RENEW = """
UPDATE members SET lease_until = now() + %(lease)s * interval '1 s', load = coalesce(%(load)s::jsonb, load),
    unbroken_since = CASE WHEN lease_until < now() THEN now() ELSE unbroken_since END
WHERE member_id = %(member_id)s AND state IN ('active', 'draining') RETURNING state
"""
_LEAVE = """
WITH gone AS (UPDATE members SET state = 'left' WHERE member_id = %(member_id)s AND state <> 'fenced')
SELECT pg_notify(%(channel)s, %(member_id)s)
"""
_SET_STATE = """
WITH changed AS (
    UPDATE members SET state = %(state)s WHERE member_id = %(member_id)s AND state IN ('active', 'draining') RETURNING 1
)
SELECT pg_notify(%(channel)s, %(member_id)s) FROM changed
"""
_FENCE = """
WITH fenced AS (
    UPDATE members SET state = 'fenced' WHERE member_id = %(member_id)s AND state IN ('active', 'draining') AND (
        %(by_operator)s OR lease_until < now() AND EXISTS (
            SELECT FROM members own WHERE own.member_id = %(own)s AND own.state IN ('active', 'draining')
            AND own.lease_until > now() AND own.unbroken_since < now() - %(lease)s * interval '1 s'
        )
    ) RETURNING 1
)
SELECT pg_notify(%(channel)s, %(member_id)s) FROM fenced
"""
_LIST = """
SELECT member_id, kind, host, pid, started, boot_id, address, version, labels, load, state,
    lease_until > now(), extract(epoch FROM lease_until - now())::float8, extract(epoch FROM now() - joined_at)::float8,
    (SELECT count(*) FROM holds WHERE holds.member_id = members.member_id AND holder IS NOT NULL)
FROM members ORDER BY joined_at, member_id
"""


@dataclass(frozen=True)
class Member:
    """A process that takes part; its worker processes hold sessions in its name.

    `is_leased` says whether its lease still runs, `lease_s` for how long, below 0 how long it has been over: by the
    database's clock, at the moment of the question. `holds` is how many sessions it has.
    """

    member_id: str
    kind: str
    host: str
    pid: int
    started: float
    boot_id: str
    address: str | None
    version: str
    labels: Mapping[str, Any] = field(default_factory=dict)
    load: Mapping[str, Any] = field(default_factory=dict)
    state: MemberState = "active"
    is_leased: bool = True
    lease_s: float = LEASE_S
    age_s: float = 0.0
    holds: int = 0

    @property
    def is_live(self) -> bool:
        return self.state in ("active", "draining") and self.is_leased


class Members:
    """The members of a store, and the one that this process belongs to: one of its own, or that of its daemon.

    `on_fenced` is called, in the store's thread, when this process learns that others fenced it.
    """

    def __init__(self, database: Database, notifications: Notifications, supervisor: Supervisor, kind: str) -> None:
        self._database, self._notifications, self._kind = database, notifications, kind
        self._supervisor = supervisor
        self._own_id: str | None = None
        self._is_fenced = self._has_left = False
        self._joining = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None
        self._load: str | None = None
        self.on_fenced: Callable[[], None] = lambda: None
        self.is_fit: Callable[[], bool] = lambda: True

    @property
    def own_id(self) -> str | None:
        """The member in whose name this process holds sessions, None while it needs none."""
        return self._own_id

    def belong_to(self, member_id: str) -> None:
        """Hold sessions in the name of another process, which renews the lease."""
        self._own_id = member_id

    async def join(self, *, address: str | None = None, labels: Mapping[str, Any] | None = None) -> str:
        """Become a member, anew if this process was one before, and renew the lease from now on; returns its id.

        `address` is where other members reach this one.
        """
        return await self._database.finish(self._join(address, labels or {}))

    async def renew(self, load: Mapping[str, Any] | None = None) -> None:
        """Say now that this member is there, and how busy it is.

        Raises:
            MemberFencedError: others fenced it.
        """
        self._load = None if load is None else json.dumps(load)
        await self._database.read(self._renew)

    async def leave(self) -> None:
        """Stop being a member; what it still holds is free. Nothing is held any more before it joins again."""
        await self._database.finish(self._leave())

    async def list(self) -> tuple[Member, ...]:
        """Return everyone who takes part, and who did lately."""

        async def select(connection: AsyncConnection) -> tuple[Member, ...]:
            return tuple(Member(*row) for row in await (await connection.execute(_LIST)).fetchall())

        return await self._database.read(select)

    async def fence(self, member_id: str, *, by_operator: bool = False) -> bool:
        """Shut a member out whose lease is over, if this one has seen the database all the while; else say False.

        After a time in which no member reached the database every lease has expired, and every member gets one lease
        time to come back. An operator may shut out any member.
        """

        async def change(connection: AsyncConnection) -> bool:
            values = {"member_id": member_id, "own": self._own_id, "by_operator": by_operator}
            found = await connection.execute(_FENCE, {**values, "lease": LEASE_S, "channel": _CHANNEL})
            return bool(found.rowcount)

        return await self._database.finish(self._database.run(change))

    async def set_state(
        self, member_id: str, state: Literal["active", "draining"], *, within_s: float | None = None
    ) -> bool:
        """Change what a live member is to do; False when there is no such one.

        Raises:
            StoreUnavailableError: the database is away, or did not do it within a time.
        """

        async def change(connection: AsyncConnection) -> bool:
            values = {"member_id": member_id, "state": state, "channel": _CHANNEL}
            return bool((await connection.execute(_SET_STATE, values)).rowcount)

        async def in_time() -> bool:
            try:
                async with asyncio.timeout(within_s):
                    return await self._database.run(change)
            except TimeoutError:
                raise StoreUnavailableError(f"{self._database} did not answer within {within_s:g} s") from None

        return await self._database.finish(in_time())

    # --- in the database's event loop

    async def require(self) -> str:
        """Return the member in whose name sessions are held; a process that is none yet becomes one.

        Raises:
            MemberFencedError: others fenced it, or it has left, and it has not joined again.
        """
        if self._is_fenced:
            raise fenced()
        if self._has_left:
            raise MemberFencedError("this process has left the cluster", hint="ask another member, or start it again")
        if self._own_id is None:
            async with self._joining:
                if self._own_id is None:
                    await self._join(None, {})
        assert self._own_id is not None
        return self._own_id

    async def _join(self, address: str | None, labels: Mapping[str, Any]) -> str:
        member_id, own = f"member_{new_token()}", Holder.of_this_process(self._kind)
        values = {
            **{"member_id": member_id, "kind": own.kind, "host": own.host, "pid": own.pid, "started": own.started},
            **{"boot_id": own.boot_id, "address": address, "version": __version__, "labels": json.dumps(labels)},
            **{"lease": LEASE_S, "forgotten": _FORGOTTEN_AFTER},
        }

        async def insert(connection: AsyncConnection) -> None:
            await connection.execute(_JOIN, values)

        await self._database.run(insert)
        await self._stop_renewing()
        self._own_id, self._is_fenced, self._has_left = member_id, False, False
        self._renewing = self._supervisor.start("lease", lambda: self._keep_renewing(member_id))
        return member_id

    async def _leave(self) -> None:
        renewed, member_id = self._renewing is not None, self._own_id
        await self._stop_renewing()
        self._own_id, self._has_left = None, True
        if renewed and member_id is not None:
            values = {"member_id": member_id, "channel": _CHANNEL}

            async def update(connection: AsyncConnection) -> None:
                await connection.execute(_LEAVE, values)

            try:
                async with asyncio.timeout(_LEAVE_S):
                    await self._database.run(update)
            except (TimeoutError, StoreUnavailableError) as error:
                logger.warning("member %s leaves without saying so, its lease ends soon: %s", member_id, error)

    async def _stop_renewing(self) -> None:
        task, self._renewing = self._renewing, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _keep_renewing(self, member_id: str) -> None:
        """Renew the lease, and hear what wakes us, on a connection of its own that never waits for other work."""
        while True:
            try:
                connection = await self._database.connect("lease")
                async with connection:
                    await self._notifications.begin(connection)
                    while True:
                        await self._renew(connection)
                        await self._notifications.hear(connection, RENEWAL_S)
            except MemberFencedError:
                logger.error("member %s was fenced: its sessions belong to others now", member_id)  # noqa: TRY400
                self._is_fenced = True
                self.on_fenced()
                return
            except (psycopg.Error, StoreUnavailableError, OSError) as error:
                logger.warning("the lease of member %s cannot be renewed: %s", member_id, error)
            await asyncio.sleep(RENEWAL_S / 4)

    async def _renew(self, connection: AsyncConnection) -> None:
        if not self.is_fit():
            logger.error("member %s gives up its lease: its loops have failed for too long", self._own_id)
            await connection.execute(_LEAVE, {"member_id": self._own_id, "channel": _CHANNEL})
            raise fenced()
        values = {"member_id": self._own_id, "lease": LEASE_S, "load": self._load}
        async with asyncio.timeout(LEASE_S / 2):  # in time for another attempt on another connection
            found = await connection.execute(_RENEW, values)
        if not found.rowcount:
            raise fenced()


def fenced() -> MemberFencedError:
    """Return the error for a process that others fenced."""
    return MemberFencedError(
        "this process did not renew its lease in time, and others took over its sessions",
        hint="start it again; what was stored is safe, and a turn that ran here counts as interrupted",
    )


Channel = Literal["amplifier_turns", "amplifier_refusals", "amplifier_holds", "amplifier_cluster"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)


class Notifications:
    """Wakes those who subscribed, in their own event loops; heard on the connection that renews the member's lease."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: dict[Callable[[str], None], Channel] = {}

    def subscribe(self, channel: Channel, wake: Callable[[str], None]) -> Callable[[], None]:
        """Call `wake` with the word of every notification, and without one when some may have been missed.

        Returns what ends that. Only a process that is a member hears anything.
        """
        loop = asyncio.get_running_loop()

        def wake_here(word: str) -> None:
            loop.call_soon_threadsafe(wake, word)

        self._subscribers[wake_here] = channel
        return lambda: self._end(wake_here)

    async def notify(self, channel: Channel, word: str = "") -> None:
        async def select(connection: AsyncConnection) -> None:
            await connection.execute("SELECT pg_notify(%s, %s)", [channel, word])

        await self._database.finish(self._database.run(select))

    # --- in the database's event loop

    async def begin(self, connection: AsyncConnection) -> None:
        """Hear from a new connection; what was said before it was opened is lost."""
        for channel in CHANNELS:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        for wake in tuple(self._subscribers):
            self._wake(wake, "")

    async def hear(self, connection: AsyncConnection, seconds: float) -> None:
        """Pass on what comes within a time."""
        async for notification in connection.notifies(timeout=seconds):
            self._pass_on(notification)

    def _pass_on(self, notification: Notify) -> None:
        for wake, channel in tuple(self._subscribers.items()):
            if channel == notification.channel:
                self._wake(wake, notification.payload)

    def _wake(self, wake: Callable[[str], None], word: str) -> None:
        try:
            wake(word)
        except RuntimeError:  # its event loop is closed
            self._end(wake)

    def _end(self, wake: Callable[[str], None]) -> None:
        self._subscribers.pop(wake, None)
