"""What becomes of a member that is late: it is shut out first, and then the others share its sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from amplifier_core.exceptions import AmplifierError
from amplifier_system.surroundings import chance, new_token
from amplifier_system.tasks import beat, start_task

from .member_choice import MemberView

if TYPE_CHECKING:
    from amplifierd.store.postgres.store import PostgresStore

logger = logging.getLogger(__name__)

INTERVAL_S = 1.0
_AT_ONCE = 8

_CLAIM = "takeover"
_CLAIMED_S = 5.0
"""For how long the others leave a session to the one who takes it over; by then it has another epoch."""

TakeOver = Callable[[str], Awaitable[object]]
"""Makes whole what a member left of a session. Raises `SessionHeldError` if another member has it."""


class Takeover:
    """Looks every second for members that are gone, and takes their place while `is_active`."""

    def __init__(self, store: PostgresStore, view: MemberView, take_over: TakeOver) -> None:
        self._store, self._view, self._take_over = store, view, take_over
        self._taking: dict[str, asyncio.Task[bool]] = {}
        self._few = asyncio.Semaphore(_AT_ONCE)
        self.fenced = self.taken = 0
        self.is_active = True

    async def run(self) -> None:
        """Look until this is cancelled."""
        try:
            while True:
                await self._look_patiently()
                beat()
                await asyncio.sleep(INTERVAL_S)
        finally:
            for task in self._taking.values():
                task.cancel()
            await asyncio.gather(*self._taking.values(), return_exceptions=True)

    async def _look_patiently(self) -> None:
        try:
            await self.look()
        except (AmplifierError, OSError) as error:
            logger.warning("it is not known which members are there: %s", error)

    async def look(self) -> None:
        """Look who is there; shut out who is late, and take over what those left who are gone."""
        members, own = await self._view.look(), self._store.members.own_id
        if not self.is_active:
            return
        for member in members:
            is_late = not member.is_leased and member.state in ("active", "draining") and member.member_id != own
            if is_late and await self._store.members.fence(member.member_id):
                self.fenced += 1
                logger.warning("member %s on %s is late and was fenced", member.member_id, member.host)
        left = [*(await self._store.orphaned()).items()]
        chance().shuffle(left)  # so that members which look at the same time begin with different ones
        for session_id, epoch in left:
            self._begin(session_id, epoch)

    async def take(self, session_id: str, epoch: int) -> bool:
        """Take one session over now; False if that did not work, or another member was faster."""
        taking = self._begin(session_id, epoch)
        await asyncio.wait({taking})
        return not taking.cancelled() and taking.result()

    def _begin(self, session_id: str, epoch: int) -> asyncio.Task[bool]:
        if session_id not in self._taking:
            task = self._taking[session_id] = start_task(self._take(session_id, epoch))
            task.add_done_callback(lambda done: self._taking.pop(session_id, None))
        return self._taking[session_id]

    async def _take(self, session_id: str, epoch: int) -> bool:
        async with self._few:
            try:
                if not await self._claim(f"{session_id} {epoch}"):
                    return False
                await self._take_over(session_id)
            except (AmplifierError, OSError) as error:
                logger.info("session %s was not taken over here: %s", session_id, error)
                return False
        self.taken += 1
        logger.info("session %s was taken over", session_id)
        return True

    async def _claim(self, hold: str) -> bool:
        """Be the one who takes a hold's place; False if another member is."""
        mine = new_token()
        there = await self._store.shared.put_if_absent(_CLAIM, hold, mine, expires_in_s=_CLAIMED_S)
        return there in (None, mine)
