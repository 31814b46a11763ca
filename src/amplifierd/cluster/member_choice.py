"""Which of the machines that share a store may run a session, and which of them should."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from amplifierd.exceptions import NowhereToRunError
from amplifierd.settings import ClusterSettings
from amplifierd.store.record import SessionRecord

from .destination import Destination

if TYPE_CHECKING:
    from amplifierd.store.postgres.members import Member

DAEMON = "daemon"
"""The kind of a member that runs sessions for others."""

SHARED_PATHS = "shared_paths"
"""The label of a member that has the paths which it shares with others."""


@dataclass(frozen=True)
class Choice:
    """The members that may run a session, the least busy first, and why each of the others may not."""

    members: tuple[Member, ...]
    refused: Mapping[str, str]


def labels_of(settings: ClusterSettings) -> dict[str, Any]:
    """Return what a member tells the others about its machine."""
    return {**settings.labels, SHARED_PATHS: [str(path) for path in settings.shared_paths]}


def eligible(record: SessionRecord, members: Iterable[Member]) -> Choice:
    """Say which members may run a session: those at work that have its working directory.

    The least busy of them is the one with the fewest turns, then with the fewest sessions.
    """
    reasons = [(member, _why_not(record, member)) for member in members]
    able = [member for member, reason in reasons if reason is None]
    refused = {f"{member.host} ({member.member_id})": reason for member, reason in reasons if reason}
    return Choice(tuple(sorted(able, key=_busyness)), refused)


def choose(record: SessionRecord, members: Iterable[Member]) -> Member:
    """Return the member that should run a session: of the less busy half, the less busy of two.

    Which two follows from the session's id. How busy a member is, it told a moment ago: if all sessions of that moment
    went to the least busy one, it would be the busiest.

    Raises:
        NowhereToRunError: none may; with the reason of each.
    """
    choice = eligible(record, members)
    if choice.members:
        half = choice.members[: (len(choice.members) + 1) // 2]
        return min(nsmallest(2, half, key=lambda member: _draw(record.session_id, member)), key=_busyness)
    found = "".join(f"\n  {member}: {reason}" for member, reason in choice.refused.items()) or " there are none"
    raise NowhereToRunError(
        f"session {record.session_id} cannot run on any machine:{found}",
        reasons=choice.refused,
        hint=f"start a machine that has {record.working_dir}, or move the session to another working directory",
    )


def _why_not(record: SessionRecord, member: Member) -> str | None:
    """Return why a member may not run a session, None if it may."""
    if member.kind != DAEMON:
        return f"it is not a daemon, but a {member.kind}"
    if member.state != "active":
        return f"it is {member.state}"
    if not member.is_leased:
        return "its lease has expired"
    match record.working_dir_scope:
        case "host":
            if record.working_dir_host not in (None, member.host):
                return f"the working directory is on {record.working_dir_host}"
        case "pool":
            pool = member.labels.get("pool")
            if pool != record.working_dir_pool:
                found = f"it is in {pool}" if pool else "it is in none"
                return f"the working directory is on the machines of the pool {record.working_dir_pool}, and {found}"
        case "shared":
            shared = member.labels.get(SHARED_PATHS) or ()
            if not _is_below(record.working_dir, shared):
                return f"it does not share {record.working_dir} (cluster.shared_paths: {', '.join(shared) or 'none'})"
    return None


def _is_below(directory: str, shared: Iterable[str]) -> bool:
    path = PurePosixPath(os.path.normpath(directory))
    return any(path.is_relative_to(each) for each in shared)


def _busyness(member: Member) -> tuple[float, float]:
    turns, sessions = member.load.get("turns"), member.load.get("sessions")
    return float(turns or 0), float(sessions or 0)


def _draw(session_id: str, member: Member) -> bytes:
    return hashlib.blake2b(f"{session_id}/{member.member_id}".encode(), digest_size=8).digest()


class MemberView:
    """Who is there. `ask` asks the store."""

    def __init__(self, ask: Callable[[], Awaitable[tuple[Member, ...]]]) -> None:
        self._ask = ask
        self.known: tuple[Member, ...] = ()
        self._changed = asyncio.Condition()

    async def look(self) -> tuple[Member, ...]:
        """Ask who is there now."""
        self.known = await self._ask()
        async with self._changed:
            self._changed.notify_all()
        return self.known

    def find(self, member_id: str) -> Member | None:
        return next((member for member in self.known if member.member_id == member_id), None)

    def is_live(self, member_id: str) -> bool:
        member = self.find(member_id)
        return member is not None and member.is_live

    def daemons(self, *, beside: str) -> tuple[Destination, ...]:
        """Return the other daemons that can be asked; only these have an address."""
        return tuple(
            Destination(member.member_id, member.address)
            for member in self.known
            if member.is_live and member.address and member.member_id != beside
        )

    async def gone(self, member_id: str) -> None:
        """Wait until a member is not there any more."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self.is_live(member_id))
