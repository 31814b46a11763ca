"""The turns of daemons that share a store: kept in the database before anyone is told that they were taken on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine
from contextlib import suppress
from typing import Any

from amplifier_system.surroundings import new_token
from amplifier_system.tasks import beat, cancelled, start_task
from amplifierd.exceptions import (
    MemberFencedError,
    NothingToSteerError,
    NotReadyError,
    PromptRemovedError,
    StoreUnavailableError,
)
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.store.postgres.store import PostgresStore
from amplifierd.turns.turn_queue import TurnKey
from amplifierd.workers.live_sessions import LiveSessions, OnEvent, QueuedPrompts, SubmittedTurn, TurnRequest
from amplifierd.workers.recovery import unnumbered, unpublished_end

from . import job_schema, jobs
from .abandoned_turns import LeftTurns, SharedFollowUps
from .turn_placement import TurnPlacement
from .turn_rows import CHANNEL, REFUSALS, NewTurn, RefusedTurn, TurnRow, TurnRows, refusal_of, request_of
from .turn_runs import STALLS_S, AskedTurns, TurnRuns

logger = logging.getLogger(__name__)

_DRAIN_S = 0.5
_AGAIN_S = 0.5


class DurableTurnQueue:
    """Implements `TurnQueue` over a store that several daemons share."""

    keeps_keys = True

    def __init__(self, sessions: Sessions, live: LiveSessions, on_event: OnEvent, on_end_elsewhere: OnEvent) -> None:
        store = sessions.runtime.store
        assert isinstance(store, PostgresStore)
        self._sessions, self._store, self._on_event = sessions, store, on_event
        self._most_waiting = sessions.runtime.settings.sessions.max_queue
        self._places = TurnPlacement(store)
        self._rows = TurnRows(store.database)
        self._asked, self._refused = AskedTurns(self._rows), RefusedTurns(self._rows, on_end_elsewhere)
        self._runs = TurnRuns(self._rows, store, live, self._asked, self._places.find, on_event, store.supervisor)
        self._left = LeftTurns(
            self._rows, self._runs, self._places, SharedFollowUps(store), sessions, live, self.submit
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking: asyncio.Task[None] | None = None
        self._loops: list[asyncio.Task[None]] = []
        self._subscriptions: list[Callable[[], None]] = []
        self._is_started = asyncio.Event()
        self._is_out = self._is_stopped = False

    # --- life

    async def start(self) -> None:
        if self._is_out:
            return
        await self._store.database.read(job_schema.prepare)
        worker_id = await self._store.database.read(jobs.register_worker)
        await self._places.own()
        if self._is_out:  # it is being drained, or stopped, before it had begun
            return
        subscribe = self._store.notifications.subscribe
        self._subscriptions = [
            subscribe(CHANNEL, self._hear),
            subscribe(REFUSALS, self._refused.hear),
            subscribe("amplifier_cluster", lambda word: self._left.wake()),
        ]
        self._runs.start(self._places.own, worker_id)
        self._is_started.set()
        keep = self._store.supervisor.start
        self._looking = keep("left turns", self._left.keep_looking, stalls_after_s=STALLS_S)
        self._loops = [
            self._looking,
            keep("ends of turns", self._asked.keep_looking, stalls_after_s=STALLS_S),
            keep("refused turns", self._refused.keep_telling, stalls_after_s=STALLS_S),
        ]

    async def drain(self) -> None:
        self._is_out = True
        if self._looking is not None:
            self._looking.cancel()
        await self._runs.stop()
        while await self._runs.wait(_DRAIN_S):
            await self._left.leave_to_others()
        await self._left.leave_to_others()

    async def abandon(self) -> None:
        await self._runs.abandon()

    async def stop(self) -> None:
        self._is_out = self._is_stopped = True
        await cancelled(*self._tasks, *self._loops)
        await self._runs.stop()

    async def close(self) -> None:
        await self._runs.close()
        for end in self._subscriptions:
            end()
        self._asked.close()

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = start_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _hear(self, word: str) -> None:
        if not word or self._places.is_own(word):
            self._runs.wake(is_unsure=not word)
            self._asked.wake()

    # --- turns

    async def submit(self, session_id: str, turn: TurnRequest, key: TurnKey | None = None) -> SubmittedTurn:
        if self._is_stopped:
            raise NotReadyError("the daemon takes no further turns", hint="try again when it is back")
        own, record = await asyncio.gather(self._places.own(), self._sessions.read_adopted(session_id))
        turn_id = turn.correlation_id or f"prompt_{session_id}_{new_token(16)}"
        new = NewTurn(turn_id, session_id, await self._places.find(record), own, turn, key)
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
            data = {"position": kept.before}
            self._on_event(unnumbered("execution:queued", session_id, kept.turn_id, record.root_id, data))
            return SubmittedTurn(session_id, kept.turn_id, "queued", result)
        return SubmittedTurn(session_id, kept.turn_id, "accepted", result, kept.is_repeated)

    async def _expire(self, turn_id: str, session_id: str, deadline_s: float) -> None:
        """End a turn that has not begun by its deadline; if this process ends before it, other members do so later."""
        pause_s: float | None = deadline_s
        while pause_s is not None:
            await asyncio.sleep(pause_s)
            try:
                pause_s = await self._end_if_late(turn_id, session_id)
            except (StoreUnavailableError, MemberFencedError) as error:
                logger.warning("whether turn %s is too late is looked at again: %s", turn_id, error)
                pause_s = _AGAIN_S

    async def _end_if_late(self, turn_id: str, session_id: str) -> float | None:
        """End a turn if its deadline is over by the database's clock; returns when to look again, if it still waits."""
        for row in await self._waiting(session_id):
            if row.turn_id == turn_id:
                await self._runs.refuse_late(row, by=await self._places.own())
        left = await self._rows.seconds_left(turn_id)
        return None if left is None else max(left, _AGAIN_S)

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
        if not await self._runs.refuse(row, error, by=await self._places.own()):
            raise NothingToSteerError(f"the prompt at position {position} has begun meanwhile")
        return request_of(row.request).prompt

    async def take_over(self, session_id: str) -> None:
        await self._is_started.wait()
        await self._left.take_over(session_id)


# Turns that were refused, by whichever member: those who watch here see them end as well.
#
# Nothing is stored of them in their sessions, so anyone who waits for their ends would wait forever.


_MOST = 1000
_REFUSED_AGAIN_S = 1.0
_BEAT_S = 10.0


class RefusedTurns:
    """Tells `on_end` how refused turns ended, some of them more than once; used in one event loop."""

    def __init__(self, rows: TurnRows, on_end: OnEvent) -> None:
        self._rows, self._on_end = rows, on_end
        self._heard: set[str] = set()
        self._is_unsure = True
        self._wake = asyncio.Event()

    def hear(self, turn_id: str) -> None:
        """Take note that a turn was refused; without an id, that some may have been."""
        if turn_id:
            self._heard.add(turn_id)
        else:
            self._is_unsure = True
        self._wake.set()

    async def keep_telling(self) -> None:
        """Tell of those that were heard of, and first of those that were refused a short time ago."""
        while True:
            beat()
            self._wake.clear()
            heard, self._heard = self._heard, set()
            is_unsure, self._is_unsure = self._is_unsure, False
            try:
                refused = await self._read(heard, is_unsure=is_unsure)
            except StoreUnavailableError as error:
                logger.warning("which turns were refused elsewhere is not known yet: %s", error)
                self._heard |= heard
                self._is_unsure = self._is_unsure or is_unsure
                self._wake.set()
                await asyncio.sleep(_REFUSED_AGAIN_S)
            else:
                for turn in refused:
                    self._on_end(unpublished_end(turn.session_id, turn.turn_id, turn.root_id, refusal_of(turn.result)))
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await self._wake.wait()

    async def _read(self, heard: Collection[str], *, is_unsure: bool) -> list[RefusedTurn]:
        lately = await self._rows.refused_lately(_MOST) if is_unsure else []
        return [*lately, *(await self._rows.refused(heard) if heard else [])]
