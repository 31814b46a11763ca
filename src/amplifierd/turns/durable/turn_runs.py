"""The turns that this member runs: taken when it is their time, handed to their session, and kept when they end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

from amplifier_core.exceptions import AmplifierError
from amplifier_sessions.event_page import named_events
from amplifier_system.surroundings import steady_time
from amplifier_system.tasks import Supervisor, beat, cancelled, run_to_end, start_task
from amplifierd.exceptions import (
    HoldLostError,
    MemberFencedError,
    NotReadyError,
    SessionHeldError,
    SessionNotFoundError,
    SessionStateError,
    StoreUnavailableError,
)
from amplifierd.problems import REFUSALS, find_problem
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE
from amplifierd.sessions.prompt_queue import deadline_passed
from amplifierd.store.protocol import SessionStore
from amplifierd.store.record import SessionRecord
from amplifierd.workers.live_sessions import LiveSessions, OnEvent, TurnRequest
from amplifierd.workers.recovery import UNKNOWN, stored_outcome, unpublished_end

from .turn_rows import TurnRow, TurnRows, error_text, refusal_text, request_of, result_of, result_text

logger = logging.getLogger(__name__)

FindMember = Callable[[SessionRecord], Awaitable[str]]
"""Returns the member that is to run the turns of a session; raises if none can."""

Begun = Literal["no", "unpublished", "ended"]
"""True if a turn had begun: not at all, without that its end is told, or with an end that is known."""

LOOK_S = 10.0
"""How often is looked for what no notification told."""

STALLS_S = 60.0
"""A loop of turns that stands still for so long gives up the member's lease; each waits at most for a database."""

_MOST_MOVES = 8
_AGAIN_S = 1.0
_CLOSE_S = 5.0


class TurnRuns:
    """Takes this member's turns one after the other, and runs each to its end."""

    def __init__(
        self,
        rows: TurnRows,
        store: SessionStore,
        live: LiveSessions,
        asked: AskedTurns,
        find_member: FindMember,
        on_event: OnEvent,
        supervisor: Supervisor,
    ) -> None:
        self._supervisor = supervisor
        self._rows, self._store, self._live, self._asked = rows, store, live, asked
        self._find_member, self._on_event = find_member, on_event
        self._running: dict[asyncio.Task[object], TurnRow] = {}
        self._wake = asyncio.Event()
        self._is_unsure = True
        self._times_abandoned = 0
        self._taking: asyncio.Task[None] | None = None

    def start(self, member: Callable[[], Awaitable[str]], worker_id: int) -> None:
        self._taking = self._supervisor.start(
            "turns", lambda: self._take_all(member, worker_id), stalls_after_s=STALLS_S
        )

    def wake(self, *, is_unsure: bool = False) -> None:
        """Look for turns now; `is_unsure` says that answers of the database may have been lost."""
        self._is_unsure = self._is_unsure or is_unsure
        self._wake.set()

    async def stop(self) -> None:
        """Take no further turns."""
        await cancelled(self._taking)

    @property
    def sessions(self) -> frozenset[str]:
        """The sessions whose turns run here."""
        return frozenset(row.session_id for row in self._running.values())

    async def wait(self, seconds: float) -> bool:
        """Wait for a time until a turn has ended; False when none runs."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return bool(self._running)

    async def abandon(self) -> None:
        """Give up what was taken as a member that others fenced: who waits here would begin a turn a second time.

        What is just being taken in its name is not begun either.
        """
        self._times_abandoned += 1
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def close(self) -> None:
        """Wait a little until what came of those that run is kept; who has a session next finds out the rest."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=_CLOSE_S)
        await self.abandon()

    # --- taking

    async def _take_all(self, member: Callable[[], Awaitable[str]], worker_id: int) -> None:
        looked_at = -LOOK_S
        while True:
            beat()
            self._wake.clear()
            generation = self._times_abandoned
            if steady_time() >= looked_at + LOOK_S:  # however often it is woken
                looked_at, self._is_unsure = steady_time(), True
            try:
                await self._take(await member(), worker_id, generation)
            except (StoreUnavailableError, MemberFencedError) as error:
                logger.warning("no turns are taken: %s", error)
                await asyncio.sleep(_AGAIN_S)
                self.wake(is_unsure=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()

    async def _take(self, member_id: str, worker_id: int, generation: int) -> None:
        is_unsure, self._is_unsure = self._is_unsure, False
        while await run_to_end(self._take_next(member_id, worker_id, generation)):
            pass
        known = {row.turn_id for row in self._running.values()}  # one that ends while we ask may have gone elsewhere
        for row in await self._rows.running(member_id) if is_unsure else ():
            if row.turn_id not in known and generation == self._times_abandoned:  # the answer to its taking was lost
                self._begin(row, self._find_out(row))

    async def _take_next(self, member_id: str, worker_id: int, generation: int) -> bool:
        """Take a turn, if there is one, and begin it: once it is taken, no other member does.

        If the member was fenced meanwhile, others do, and so does this process as the member that it is then.
        """
        row = await self._rows.take(member_id, worker_id)
        if row is None or generation != self._times_abandoned:
            return False
        self._begin(row, self._run(row) if row.state == "running" else self.refuse_late(row))
        return True

    def _begin(self, row: TurnRow, work: Coroutine[Any, Any, object]) -> None:
        """Do something about a turn, even if an earlier attempt, which others took from here, has not ended yet."""
        task = start_task(self._do(row, work))
        self._running[task] = row
        task.add_done_callback(self._running.pop)

    async def _do(self, row: TurnRow, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except Exception as error:
            logger.exception("what became of turn %s is not known", row.turn_id)
            await self._leave(row, error)

    # --- running

    async def _run(self, row: TurnRow) -> None:
        request = replace(request_of(row.request), correlation_id=row.turn_id, queue=True, deadline_s=None)
        try:
            _check(row, request)
            submitted = await self._live.submit(row.session_id, request)
        except (StoreUnavailableError, MemberFencedError, HoldLostError) as error:
            await self._leave(row, error)
            return
        except (SessionHeldError, NotReadyError) as error:
            await self._pass_on(row, error)
            return
        except (AmplifierError, OSError) as error:
            await self.refuse(row, error)
            return
        try:
            result = await submitted.result
        except (HoldLostError, MemberFencedError, NotReadyError) as error:
            await self._leave(row, error)
        except Exception as error:  # noqa: BLE001 - whatever ended it, those who wait for it are told
            await self.end(row, error_text(error))
        else:
            if result.pop(UNKNOWN, False):
                await self._leave(row, NotReadyError("its session could not be brought back"))
            else:
                await self.end(row, result_text(result))

    async def _leave(self, row: TurnRow, reason: Exception) -> None:
        """Leave a turn as it is: the next holder of its session, which may be this one, knows whether it had begun."""
        logger.info("turn %s is left as it is: %s", row.turn_id, reason)
        await asyncio.sleep(_AGAIN_S)
        self.wake(is_unsure=True)

    async def _pass_on(self, row: TurnRow, error: Exception) -> None:
        """Let another member run a turn that could not begin here, or this one once more."""
        if row.moves >= _MOST_MOVES:
            await self.refuse(row, error)
            return
        if not isinstance(error, SessionHeldError):
            with suppress(AmplifierError):
                await self._live.unload(row.session_id)
        try:
            to = await self._find_member(await self._store.read(row.session_id))
            if to == row.member_id:
                await asyncio.sleep(_AGAIN_S)
            await self._rows.move([row], to)
            self.wake()
        except (StoreUnavailableError, MemberFencedError) as reason:
            await self._leave(row, reason)
        except (AmplifierError, OSError) as reason:
            await self.refuse(row, reason)

    async def _find_out(self, row: TurnRow) -> None:
        """Run a turn that no member runs, unless it had begun; how one ended is told when its session is opened."""
        begun = await self.end_begun(row)
        if begun == "unpublished":
            try:
                await self._live.load(row.session_id)
            except (AmplifierError, OSError) as error:
                await self._leave(row, error)
                return
            begun = await self.end_begun(row, is_over=True)
        if begun == "no":
            await self._run(row)

    # --- ending

    async def end_begun(self, row: TurnRow, *, by: str | None = None, is_over: bool = False) -> Begun:
        """End a turn that was broken off as its session tells it, if it had begun.

        While its end is unpublished, another member may be about to tell it; `is_over` says that none is.
        """
        messages = await self._store.read_messages(row.session_id)
        own = [message for message in messages if message.get("correlation_id") == row.turn_id]
        if not own:
            return "no"
        events = await named_events(self._store.read_event_page, row.session_id, (TURN_DONE,))
        is_told = any(one.get("correlation_id") == row.turn_id for one in events)
        if not is_told and not is_over:
            return "unpublished"
        outcome = stored_outcome(row.session_id, row.turn_id, int(own[0].get("turn") or 0), events)
        await self.end(row, result_text(outcome), by=by)
        return "ended"

    async def end(self, row: TurnRow, result: str, *, by: str | None = None) -> None:
        """Keep what came of a turn, and tell those who wait for it."""
        if await self._keep(row, result, by=by):
            self._asked.settle(row.turn_id, result)

    async def refuse(self, row: TurnRow, error: Exception, *, by: str | None = None, is_late: bool = False) -> bool:
        """End a turn that has not begun; False when it has, or if its deadline is not over and only that ends it.

        Of some refusals nothing is kept: the same key may be used again.
        """
        result = refusal_text(error)
        keeps_key = find_problem(error).status not in REFUSALS
        if not await self._keep(row, result, by=by, is_late=is_late, keeps_key=keeps_key, is_refusal=True):
            return False
        try:
            root_id = (await self._store.read(row.session_id)).root_id
        except (SessionNotFoundError, StoreUnavailableError):
            root_id = row.session_id
        self._on_event(unpublished_end(row.session_id, row.turn_id, root_id, error))
        self._asked.settle(row.turn_id, result)
        return True

    async def refuse_late(self, row: TurnRow, *, by: str | None = None) -> bool:
        """End a turn that waits, if its deadline is over."""
        return await self.refuse(row, deadline_passed(request_of(row.request).deadline_s), by=by, is_late=True)

    async def _keep(self, row: TurnRow, result: str, *, by: str | None, **how: Any) -> bool:
        """Keep what came of a turn, as `TurnRows.end` does, however long that takes."""
        while True:
            try:
                ended = await self._rows.end(row, result, by=by, **how)
                break
            except StoreUnavailableError as error:
                logger.warning("what came of turn %s is not kept yet: %s", row.turn_id, error)
                await asyncio.sleep(_AGAIN_S)
        if ended is not None and ended.following == (by or row.member_id):
            self.wake()
        return ended is not None


def _check(row: TurnRow, request: TurnRequest) -> None:
    """Refuse a turn whose session has ended while it waited."""
    if row.session_status not in (None, "active", "created") and not request.auto_resume:
        raise SessionStateError(
            f"session {row.session_id} is {row.session_status}", hint="resume it, then send it again"
        )


_LOOK_S = 2.0
"""How often to look for ends that no notification told, while one is waited for."""


class AskedTurns:
    """Settles futures with what came of turns; used in one event loop."""

    def __init__(self, rows: TurnRows) -> None:
        self._rows = rows
        self._futures: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._wake = asyncio.Event()

    def future(self, turn_id: str) -> asyncio.Future[dict[str, Any]]:
        """Return what is settled when the turn has ended."""
        if turn_id not in self._futures:
            self._futures[turn_id] = asyncio.get_running_loop().create_future()
        return self._futures[turn_id]

    def forget(self, turn_id: str) -> None:
        self._futures.pop(turn_id, None)

    def settle(self, turn_id: str, result: str) -> None:
        """Tell those who wait what came of a turn."""
        future = self._futures.pop(turn_id, None)
        if future is None or future.done():
            return
        try:
            future.set_result(result_of(result))
        except Exception as error:  # noqa: BLE001 - whatever ended it, those who wait for it are told
            future.set_exception(error)
            future.exception()  # whether anyone waits is not known here

    async def look(self) -> None:
        """Settle what has ended elsewhere."""
        if self._futures:
            for turn_id, result in (await self._rows.results(self._futures)).items():
                self.settle(turn_id, result)

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    async def keep_looking(self) -> None:
        """Look whenever it is said to, and from time to time."""
        while True:
            beat()
            self._wake.clear()
            try:
                await self.look()
            except StoreUnavailableError as error:
                logger.warning("what came of turns elsewhere is not known yet: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wake.wait()

    def close(self) -> None:
        """Turn everyone away who still waits; their turns are kept, and run elsewhere or later."""
        for turn_id, future in tuple(self._futures.items()):
            self.forget(turn_id)
            if not future.done():
                future.set_exception(
                    NotReadyError(
                        "the daemon is stopping, and the turn continues elsewhere", hint="ask again with the same key"
                    )
                )
                future.exception()
