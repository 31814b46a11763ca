"""Turns of a member that is gone, or is about to go: what had begun is ended, and the rest runs elsewhere.

What has not begun by its deadline is ended as well, whichever member was to run it, and wherever it is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_system.surroundings import chance
from amplifier_system.tasks import beat
from amplifierd.exceptions import NowhereToRunError, SessionHeldError, SessionNotFoundError
from amplifierd.sessions.conversation.interrupted_turns import InterruptedTurn
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.turns.turn_queue import Submit, follow, has_follow_up
from amplifierd.workers.live_sessions import LiveSessions

from .turn_placement import TurnPlacement
from .turn_rows import TurnRow, TurnRows
from .turn_runs import LOOK_S, TurnRuns

logger = logging.getLogger(__name__)

_MOST = 1000
_AT_ONCE = 8


class LeftTurns:
    """Takes sessions over with their turns, and leaves them to others."""

    def __init__(
        self,
        rows: TurnRows,
        runs: TurnRuns,
        places: TurnPlacement,
        follow_ups: SharedFollowUps,
        sessions: Sessions,
        live: LiveSessions,
        submit: Submit,
    ) -> None:
        self._rows, self._runs, self._places, self._follow_ups = rows, runs, places, follow_ups
        self._sessions, self._live, self._submit = sessions, live, submit
        self._store = sessions.runtime.store
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """Look now: a member may have gone."""
        self._changed.set()

    async def keep_looking(self) -> None:
        """Take over what members left who are gone, and end what is late, whenever one goes and from time to time."""
        while True:
            beat()
            self._changed.clear()
            try:
                await self._rows.forget_old()
                await self._refuse_late()
                await self._take_all()
                for interrupted in await self._follow_ups.left():
                    beat()
                    await self._go_on(interrupted.session_id, interrupted)
            except (AmplifierError, OSError) as error:
                logger.warning("turns that other members left are not taken over: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()

    async def _refuse_late(self) -> None:
        for row in await self._rows.late(_MOST):
            beat()
            await self._runs.refuse_late(row, by=await self._places.own())

    async def _take_all(self) -> None:
        """Take over every session with such turns; other members do the same, and each gets its share."""
        few = asyncio.Semaphore(_AT_ONCE)

        async def take(session_id: str) -> None:
            async with few:
                beat()
                try:
                    await self.take_over(session_id)
                except SessionHeldError:
                    await self._have_run(session_id, await self._unbegun(session_id, is_over=False))
                except SessionNotFoundError as error:
                    for row in await self._rows.turns_in(session_id):
                        await self._runs.refuse(row, error, by=await self._places.own())

        await asyncio.gather(*map(take, _mixed(await self._rows.sessions_left(_MOST))))

    async def take_over(self, session_id: str) -> None:
        """Take over a session that no living member holds.

        Raises:
            SessionHeldError: one does.
        """
        await self._go_on(session_id, await self._sessions.take_over(session_id, self._follow_ups.keep))

    async def _go_on(self, session_id: str, interrupted: InterruptedTurn | None) -> None:
        """Have a session run on after it was taken over, and its turn, if one was interrupted, was marked."""
        if interrupted is not None:
            await self._repair(interrupted)
        unbegun = await self._unbegun(session_id, is_over=True)
        if interrupted is not None:  # what follows comes before what waits
            await follow(interrupted, self._follow_ups, self._store, self._live, self._submit)
        await self._have_run(session_id, unbegun)

    async def _repair(self, interrupted: InterruptedTurn) -> None:
        """Make the conversation whole, as opening a session does, unless it belongs on another machine."""
        session_id = interrupted.session_id
        try:
            if not await self._places.may_be_here(await self._store.read(session_id)):
                return
            await self._live.load(session_id)
            if interrupted.turn is None:  # that of an agent, which is opened when it is needed
                await self._live.unload(session_id)
        except (AmplifierError, OSError) as error:
            logger.warning("session %s is repaired when it is opened next: %s", session_id, error)

    async def _unbegun(self, session_id: str, *, is_over: bool) -> list[TurnRow]:
        """Return the turns that have not begun; of those that had is said how they ended.

        `is_over` says that no other member is about to tell that any more.
        """
        own, left = await self._places.own(), await self._rows.turns_in(session_id)
        return [
            row
            for row in left
            if row.state == "waiting" or await self._runs.end_begun(row, by=own, is_over=is_over) == "no"
        ]

    async def _have_run(self, session_id: str, unbegun: list[TurnRow]) -> None:
        """Have turns run by a member that can."""
        if not unbegun:
            return
        try:
            to = await self._places.find(await self._store.read(session_id))
        except (NowhereToRunError, SessionHeldError) as error:
            logger.info("turns of session %s wait until they can run: %s", session_id, error)
            return
        await self._rows.move(unbegun, to)
        self._runs.wake()

    async def leave_to_others(self) -> None:
        """Have other members run what waits here; what belongs to a session that is at work goes with its last turn."""
        waiting = await self._rows.waiting(await self._places.own())
        for session_id, found in groupby(waiting, lambda row: row.session_id):
            rows = [*found]
            if session_id in self._runs.sessions:
                continue
            try:
                await self._live.unload(session_id)
                await self._rows.move(rows, await self._places.another(await self._store.read(session_id)))
            except AmplifierError as error:
                logger.info("turns of session %s wait until another member can run them: %s", session_id, error)


def _mixed(sessions: Sequence[str]) -> list[str]:
    """Keep to the order, but not so closely that members which look at the same time begin with the same ones."""
    places = {session_id: place + chance().uniform(0, 4 * _AT_ONCE) for place, session_id in enumerate(sessions)}
    return sorted(sessions, key=places.__getitem__)


_KIND = "follow_up"


class SharedFollowUps:
    """Implements `FollowUps` over a store that several daemons share."""

    def __init__(self, store: PostgresStore) -> None:
        self._shared, self._members = store.shared, store.members
        self._kept: dict[InterruptedTurn, dict[str, Any]] = {}

    async def keep(self, interrupted: Sequence[InterruptedTurn]) -> None:
        for one in filter(has_follow_up, interrupted):
            value = {"turn": one.turn, "action": one.action, "correlation_id": one.correlation_id}
            self._kept[one] = {**value, "member_id": self._members.own_id}
            await self._shared.put(_KIND, one.session_id, self._kept[one])

    async def left(self) -> Sequence[InterruptedTurn]:
        if not (kept := await self._shared.list(_KIND)):
            return ()
        others = {one.member_id for one in await self._members.list() if one.is_live} - {self._members.own_id}
        left = {
            InterruptedTurn(session_id, value["turn"], value["action"], value["correlation_id"]): value
            for session_id, value in kept.items()
            if value["member_id"] not in others
        }
        self._kept |= left
        return tuple(left)

    async def drop(self, interrupted: InterruptedTurn) -> None:
        """Remove what was kept here, or found; what another member has kept meanwhile stays."""
        if (value := self._kept.pop(interrupted, None)) is not None:
            await self._shared.delete(_KIND, interrupted.session_id, value)
