"""The members of the cluster as they were a moment ago: asked for every second, and looked at without waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from .destination import Destination

if TYPE_CHECKING:
    from amplifierd.session_store.postgres.members import Member


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
