"""Which member runs the turns of a session: who holds it, else this one, else the one that is best for it."""

from __future__ import annotations

from collections.abc import Sequence

from amplifierd.cluster.member_choice import DAEMON, choose, eligible
from amplifierd.store.hold import held
from amplifierd.store.postgres.members import Member
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.store.record import SessionRecord
from amplifierd.workers.orphans import WORKER

_DAEMONS = (WORKER, DAEMON)
"""Holders that run turns for others."""


class TurnPlacement:
    """Finds members for turns. A process that was fenced and joined again has had several ids."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._own_ids: set[str] = set()

    async def own(self) -> str:
        """Return the id of this member."""
        member_id = await self._store.join()
        self._own_ids.add(member_id)
        return member_id

    def is_own(self, member_id: str) -> bool:
        """True if this process is, or was, that member."""
        return member_id in self._own_ids

    async def find(self, record: SessionRecord) -> str:
        """Return the member that is to run the turns of a session.

        Raises:
            SessionHeldError: a program has it that runs no turns for others.
            NowhereToRunError: no member may run it.
        """
        hold = await self._store.holder_of(record.root_id)
        if hold is not None:
            if hold.member_id is None or not (hold.holder.kind in _DAEMONS or self.is_own(hold.member_id)):
                raise held(hold)
            if hold.holder.kind != DAEMON or await self._may_be_at(hold.member_id, record):
                return hold.member_id  # a daemon itself has it for a moment only, whether it can run it or not
        if await self.may_be_here(record):
            return await self.own()
        return choose(record, await self._members()).member_id

    async def may_be_here(self, record: SessionRecord) -> bool:
        """True if this member has what a session needs, its working directory above all."""
        return await self._may_be_at(await self.own(), record)

    async def _may_be_at(self, member_id: str, record: SessionRecord) -> bool:
        able = eligible(record, await self._members()).members
        return any(member.member_id == member_id for member in able)

    async def another(self, record: SessionRecord) -> str:
        """Return the best member for a session without a holder; not this one, if it is being drained.

        Raises:
            NowhereToRunError: no member may run it.
        """
        return choose(record, await self._members()).member_id

    async def _members(self) -> Sequence[Member]:
        """Return all members; after the database was away this one may have to say first that it is there."""
        members = await self._store.members.list()
        if any(member.member_id == self._store.members.own_id and not member.is_leased for member in members):
            await self._store.members.renew()
            members = await self._store.members.list()
        return members
