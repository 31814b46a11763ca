"""The turns of daemons that share a store: kept in the database before anyone is told that they were taken on."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from itertools import groupby
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifierd.cluster.placement import DAEMON, choose, eligible
from amplifierd.exceptions import (
    NothingToSteerError,
    NotReadyError,
    NowhereToRunError,
    PromptRemovedError,
    SessionHeldError,
    SessionNotFoundError,
)
from amplifierd.live_sessions import LiveSessions, OnEvent, QueuedPrompts, SubmittedTurn, TurnRequest
from amplifierd.session_store.hold import held
from amplifierd.session_store.postgres.members import Member
from amplifierd.session_store.postgres.store import PostgresStore
from amplifierd.session_store.record import SessionRecord
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.sessions.interrupted_turns import InterruptedTurn
from amplifierd.sessions.prompt_queue import deadline_passed
from amplifierd.turns.takeover import follow
from amplifierd.turns.turn_queue import TurnKey
from amplifierd.workers.orphans import WORKER
from amplifierd.workers.untold_end import unnumbered

from . import job_schema, jobs
from .asked_turns import AskedTurns
from .turn_rows import CHANNEL, NewTurn, TurnRow, TurnRows
from .turn_runs import LOOK_S, TurnRuns
from .turn_text import request_of

logger = logging.getLogger(__name__)

_DAEMONS = (WORKER, DAEMON)
"""Holders that run turns for others."""

_AT_ONCE = 50
_DRAIN_S = 0.5


class DurableTurnQueue:
    """Implements `TurnQueue` over a store that several daemons share.

    A turn runs where its session is held, else here, else on the member that is best for it.
    """

    keeps_keys = True

    def __init__(self, sessions: Sessions, live: LiveSessions, on_event: OnEvent) -> None:
        store = sessions.runtime.store
        assert isinstance(store, PostgresStore)
        self._sessions, self._store, self._live, self._on_event = sessions, store, live, on_event
        self._most_waiting = sessions.runtime.settings.sessions.max_queue
        self._rows = TurnRows(store.database)
        self._asked = AskedTurns(self._rows)
        self._runs = TurnRuns(self._rows, store, live, self._asked, self._member_for, on_event)
        self._own_ids: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._adopting: asyncio.Task[None] | None = None
        self._subscriptions: list[Callable[[], None]] = []
        self._is_started, self._is_stopped = asyncio.Event(), False
        self._changed = asyncio.Event()

    # --- life

    async def start(self) -> None:
        await self._store.database.read(job_schema.prepare)
        worker_id = await self._store.database.read(jobs.register_worker)
        await self._member()
        subscribe = self._store.notifications.subscribe
        self._subscriptions = [
            subscribe(CHANNEL, self._hear),
            subscribe("amplifier_cluster", lambda word: self._changed.set()),
        ]
        self._runs.start(self._member, worker_id)
        self._is_started.set()
        self._begin(self._asked.keep_looking())
        self._adopting = self._begin(self._keep_adopting())

    async def drain(self) -> None:
        own = await self._member()
        if self._adopting is not None:
            self._adopting.cancel()
        await self._runs.stop()
        while await self._runs.wait(_DRAIN_S):
            await self._leave_to_others(own)
        await self._leave_to_others(own)

    async def _leave_to_others(self, own: str) -> None:
        """Have other members run what waits here, unless its session is at work; it goes with its last turn."""
        for session_id, found in groupby(await self._rows.waiting(own), lambda row: row.session_id):
            rows = [*found]
            if session_id in self._runs.sessions:
                continue
            try:
                await self._live.unload(session_id)
                record = await self._store.read(session_id)
                await self._rows.move(rows, choose(record, await self._members()).member_id)
            except AmplifierError as error:
                logger.info("turns of session %s wait until another member can run them: %s", session_id, error)

    async def stop(self) -> None:
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runs.stop()

    async def close(self) -> None:
        await self._runs.close()
        for end in self._subscriptions:
            end()
        self._asked.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _member(self) -> str:
        member_id = await self._store.join()
        self._own_ids.add(member_id)
        return member_id

    def _hear(self, word: str) -> None:
        if not word or word in self._own_ids:
            self._runs.wake(is_unsure=not word)
            self._asked.wake()

    async def _keep_adopting(self) -> None:
        """Look after what members left who are gone, whenever one goes, and from time to time."""
        while True:
            self._changed.clear()
            try:
                await self._rows.forget_old()
                await self._adopt()
            except (AmplifierError, OSError) as error:
                logger.warning("turns that other members left are not taken over: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._changed.wait()

    # --- turns

    async def submit(self, session_id: str, turn: TurnRequest, key: TurnKey | None = None) -> SubmittedTurn:
        if self._is_stopped:
            raise NotReadyError("the daemon takes no further turns", hint="try again when it is back")
        own, record = await asyncio.gather(self._member(), self._read(session_id))
        turn_id = f"prompt_{session_id}_{uuid.uuid4().hex[:16]}"
        new = NewTurn(turn_id, session_id, await self._member_for(record), own, turn, key)
        result = self._asked.future(turn_id)
        try:
            kept = await self._rows.submit(new, most=self._most_waiting)
        except BaseException:
            self._asked.forget(turn_id)
            raise
        if kept.is_repeated:
            self._asked.forget(turn_id)
            result = self._asked.future(kept.turn_id)
            await self._asked.look()
        elif turn.deadline_s is not None:
            self._begin(self._expire(turn_id, session_id, turn.deadline_s))
        self._runs.wake()
        if kept.before:
            told = {"position": kept.before}
            self._on_event(unnumbered("execution:queued", session_id, kept.turn_id, record.root_id, told))
            return SubmittedTurn(session_id, kept.turn_id, "queued", result)
        return SubmittedTurn(session_id, kept.turn_id, "accepted", result, kept.is_repeated)

    async def _read(self, session_id: str) -> SessionRecord:
        """Return a session; one of another application is copied first."""
        try:
            return await self._store.read(session_id)
        except SessionNotFoundError:
            await self._sessions.adopt(session_id)
            return await self._store.read(session_id)

    async def _member_for(self, record: SessionRecord) -> str:
        """Return the member that is to run the turns of a session.

        Raises:
            SessionHeldError: a program has it that runs no turns for others.
            NowhereToRunError: no member may run it.
        """
        hold = await self._store.holder_of(record.root_id)
        if hold is None:
            own, members = await self._member(), await self._members()
            here = [member for member in eligible(record, members).members if member.member_id == own]
            return here[0].member_id if here else choose(record, members).member_id
        if hold.member_id is None or (hold.holder.kind not in _DAEMONS and hold.member_id not in self._own_ids):
            raise held(hold)
        return hold.member_id

    async def _members(self) -> Sequence[Member]:
        """Return all members; after the database was away this one may have to say first that it is there."""
        members = await self._store.members.list()
        if any(member.member_id == self._store.members.own_id and not member.is_leased for member in members):
            await self._store.members.renew()
            members = await self._store.members.list()
        return members

    async def _expire(self, turn_id: str, session_id: str, deadline_s: float) -> None:
        """End a turn that has not begun by its deadline, which the database's clock decides."""
        left: float | None = deadline_s
        while left is not None:
            await asyncio.sleep(max(left, 0.001))
            for row in await self._waiting(session_id):
                if row.turn_id == turn_id:
                    await self._runs.refuse(row, deadline_passed(deadline_s), is_late=True)
            left = await self._rows.seconds_left(turn_id)

    async def _waiting(self, session_id: str) -> list[TurnRow]:
        return [row for row in await self._rows.of_session(session_id) if row.state == "waiting"]

    async def waiting(self, session_id: str) -> QueuedPrompts:
        prompts = [request_of(row.request).prompt for row in await self._waiting(session_id)]
        return QueuedPrompts(prompts, held=0)

    async def remove(self, session_id: str, position: int) -> str:
        rows = await self._waiting(session_id)
        if not 1 <= position <= len(rows):
            raise NothingToSteerError(f"no prompt waits at position {position}; {len(rows)} wait")
        row = rows[position - 1]
        error = PromptRemovedError(f"the prompt was taken out of the queue of session {session_id}")
        if not await self._runs.refuse(row, error):
            raise NothingToSteerError(f"the prompt at position {position} has begun meanwhile")
        return request_of(row.request).prompt

    # --- what others left

    async def take_over(self, session_id: str) -> None:
        await self._is_started.wait()
        interrupted = await self._sessions.take_over(session_id)
        if interrupted is not None:
            await self._repair(interrupted)
        unbegun = await self._unbegun(session_id)
        if interrupted is not None:  # what follows comes before what waits
            await follow(interrupted, self._live, self.submit)
        await self._have_run(session_id, unbegun)

    async def _repair(self, interrupted: InterruptedTurn) -> None:
        """Make the conversation whole, as opening a session does."""
        session_id = interrupted.session_id
        try:
            await self._live.load(session_id)
            if interrupted.turn is None:  # that of an agent, which is opened when it is needed
                await self._live.unload(session_id)
        except (AmplifierError, OSError) as error:
            logger.warning("session %s is repaired when it is opened next: %s", session_id, error)

    async def _adopt(self) -> None:
        """Take over every session that has turns of members who are gone; others do the same, each has its share."""
        left = await self._rows.sessions_left(_AT_ONCE)
        random.shuffle(left)
        for session_id in left:
            try:
                await self.take_over(session_id)
            except SessionHeldError:
                await self._have_run(session_id, await self._unbegun(session_id))
            except SessionNotFoundError as error:
                for row in await self._rows.left_in(session_id):
                    await self._runs.refuse(row, error)

    async def _unbegun(self, session_id: str) -> list[TurnRow]:
        """Return the turns that a member left who is gone; of those that had begun is said how they ended."""
        left = await self._rows.left_in(session_id)
        return [row for row in left if row.state == "waiting" or not await self._runs.end_begun(row)]

    async def _have_run(self, session_id: str, unbegun: list[TurnRow]) -> None:
        """Have turns run by a member that can."""
        if not unbegun:
            return
        try:
            to = await self._member_for(await self._store.read(session_id))
        except (NowhereToRunError, SessionHeldError) as error:
            logger.info("turns of session %s wait until they can run: %s", session_id, error)
            return
        await self._rows.move(unbegun, to)
        self._runs.wake()
