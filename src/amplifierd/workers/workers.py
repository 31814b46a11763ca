"""The sessions of a daemon, at work in processes of their own."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from amplifier_system.tasks import Supervisor
from amplifierd.exceptions import NotReadyError, SessionStateError
from amplifierd.sessions.conversation.compaction import Compaction
from amplifierd.sessions.events.tree_events import Event
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.sessions.prompt_queue import DOCUMENT as QUEUE
from amplifierd.sessions.questions.approval import Remember
from amplifierd.sessions.session_setup import Resolvers
from amplifierd.settings import WorkerSettings
from amplifierd.store.json_lines import encoded_for_others
from amplifierd.store.record import state_conflict

from .inspection import no_cancellation
from .live_sessions import (
    LiveState,
    LoadedState,
    OnEvent,
    Part,
    QueuedPrompts,
    SessionActs,
    SubmittedTurn,
    TurnRequest,
    WorkerState,
    acts_of,
)
from .outbox import described_event, live_event
from .placed_session import PlacedSession
from .placement import Placement
from .recovery import Recovery
from .worker_process import WorkerBlockedError, WorkerProcess
from .worker_start import DescribeHome, describe_home

logger = logging.getLogger(__name__)

GRACE_S = 10.0
"""How long turns may take to end by themselves when the daemon stops."""

_LOADING_MODULES = frozenset({"change_profile", "change_agent"})
"""What is never done in this process, since it loads modules, whether or not the session is loaded."""

_PATIENCE_S = 10.0
"""How long a worker may take to hear something, before it counts as blocked for good."""


class Workers:
    """Runs sessions in worker processes; implements `LiveSessions`. This process imports none of their modules.

    `on_event` hears every event of every session, those included that are changed in this process. A worker that has
    heard nothing for `patience_s` is blocked for good: what it is asked fails, and an immediate cancellation ends it.
    """

    def __init__(
        self,
        sessions: Sessions,
        resolvers: Resolvers,
        *,
        shipped_collection: Path | None,
        on_event: OnEvent = lambda event: None,
        patience_s: float = _PATIENCE_S,
    ) -> None:
        self._sessions, self._shipped_collection = sessions, shipped_collection
        self._on_event, self._patience_s = on_event, patience_s
        self._placement = Placement(
            sessions, resolvers, self._home_of(sessions), on_event, self._recover, patience_s=patience_s
        )
        self._supervision = Supervision(self._placement, sessions.runtime.settings.workers)
        self.supervisor, self.acts = Supervisor(), SessionActs(self._perform)
        self._supervising: asyncio.Task[None] | None = None
        self._stop_hearing: Callable[[], None] | None = None
        self._takes_turns = True

    # --- life

    async def start(self) -> None:
        """Come up; returns at once."""
        self._stop_hearing = self._sessions.listen(self._hear_own)
        self._supervising = self.supervisor.start("workers", self._supervision.run)
        self._placement.pool.begin()

    async def drain(self) -> None:
        """Take no further turns, and wait until those that were taken on have ended."""
        self._takes_turns = False
        while waiting := [one.result for placed in self._placed() for one in placed.submissions.values()]:
            await asyncio.wait(waiting)

    async def release(self) -> None:
        """Have no session loaded any more; those that do something are ended."""
        await asyncio.gather(*(self.unload(placed.session_id) for placed in self._placed()))

    @property
    def is_draining(self) -> bool:
        """True if no further turns are taken."""
        return not self._takes_turns

    def use(self, sessions: Sessions, resolvers: Resolvers) -> None:
        """Go on with sessions that have other settings; where turns run, once they have ended."""
        self._sessions = sessions
        self._placement.use(sessions, resolvers, self._home_of(sessions))
        self.renew()

    def _home_of(self, sessions: Sessions) -> DescribeHome:
        return partial(describe_home, sessions.runtime, self._shipped_collection)

    def renew(self) -> None:
        """Let every worker end as soon as its turns have ended; sessions go on in new ones."""
        for worker in self._placement.pool.workers:
            worker.is_retiring = True

    async def abandon(self) -> None:
        """End every worker at once: others have taken its sessions over, and nothing of them is brought back here."""
        await self._placement.abandon()

    async def stop(self, *, grace_s: float = GRACE_S) -> None:
        """Refuse new turns, end those that run, gently at first, and end the workers."""
        self._takes_turns, self._placement.is_closed = False, True
        if self._supervising is not None:
            self._supervising.cancel()
        await self._placement.pool.stop(grace_s)
        await self._placement.settle()
        if self._stop_hearing is not None:
            self._stop_hearing()

    def hurry(self) -> None:
        """Let a stop that is under way end turns at once."""
        self._placement.begin(self._placement.pool.stop(0))

    def _placed(self) -> tuple[PlacedSession, ...]:
        return tuple(self._placement.placed.values())

    # --- looking

    def state(self, session_id: str) -> LiveState | None:
        placed = self._placement.placed.get(session_id)
        return placed.state() if placed is not None else None

    def states(self) -> Sequence[LiveState]:
        return [placed.state() for placed in self._placed()]

    @property
    def loaded(self) -> int:
        return len(self._placement.placed)

    def workers(self) -> Sequence[WorkerState]:
        return [worker.state() for worker in self._placement.pool.workers]

    # --- loading

    async def load(self, session_id: str) -> LoadedState:
        async with self._placement.alone(session_id):
            placed = await self._placement.load(session_id)
        return LoadedState(placed.take_repaired(), placed.unread_keys)

    async def unload(self, session_id: str) -> None:
        async with self._placement.alone(session_id):
            await self._placement.unload(session_id)

    async def _loaded(self, session_id: str) -> PlacedSession:
        """Have a session in a worker. One that is there may be asked whatever waits for its lock.

        Raises:
            SessionStateError: it was not started or has ended, and being asked something does not make it go on.
        """
        if (placed := self._placement.find(session_id)) is not None:
            return placed
        async with self._placement.alone(session_id):
            status = (await self._sessions.reader.get(session_id)).status
            if status != "active":
                raise state_conflict(session_id, status, "be asked that")
            return await self._placement.load(session_id)

    # --- turns

    async def submit(self, session_id: str, turn: TurnRequest) -> SubmittedTurn:
        async with self._placement.alone(session_id):
            if not self._takes_turns:
                raise NotReadyError("the daemon takes no further turns", hint="try again when it is back")
            return await self._submit(session_id, turn)

    async def _submit(self, session_id: str, turn: TurnRequest, *, is_repeated: bool = False) -> SubmittedTurn:
        placed = await self._placement.load(session_id)
        await placed.worker.wait_until_free(self._patience_s)
        placed.worker.check_there()
        submission = placed.reserve(turn, is_repeated=is_repeated)
        try:
            async with placed.worker.taking_on:
                answer = await placed.worker.call("submit", **submission.params())
        except NotReadyError:  # the worker ended; whether the turn had begun is known when the session is brought back
            return SubmittedTurn(session_id, submission.correlation_id, "accepted", submission.result)
        except SessionStateError as error:
            placed.take_back(submission)
            raise self._placement.seen_from_here(error) from None
        except BaseException:
            placed.take_back(submission)
            raise
        return SubmittedTurn(session_id, submission.correlation_id, answer["status"], submission.result)

    async def _recover(self, lost: PlacedSession) -> None:
        runtime = self._sessions.runtime
        is_shared = not runtime.settings.store.is_files
        recovery = Recovery(runtime.store, self._placement.load, self._submit, self._on_event, is_shared=is_shared)
        await recovery.run(lost)

    async def steer(self, session_id: str, text: str) -> dict[str, Any]:
        placed = await self._loaded(session_id)
        answer: dict[str, Any] = await self._ask(placed, "steer", text=text)
        return answer

    async def cancel(self, session_id: str, *, immediate: bool = False) -> dict[str, Any]:
        """Stop the running turn. A worker that a module keeps from hearing it is killed if it is to be immediate."""
        placed = self._placement.find(session_id)
        if placed is None:
            return {"state": "none", "running_tools": []}
        try:
            answer: dict[str, Any] = await self._ask(placed, "cancel", immediate=immediate)
        except WorkerBlockedError:
            if not immediate:
                raise
            logger.warning("worker %d does not hear that a turn is to stop, and is killed", placed.worker.pid)
            await placed.worker.kill()
            return {"state": "immediate", "running_tools": []}
        return answer

    async def _ask(self, placed: PlacedSession, method: str, /, **params: Any) -> Any:
        try:
            return await placed.worker.ask(method, patience_s=self._patience_s, session_id=placed.session_id, **params)
        except SessionStateError as error:
            raise self._placement.seen_from_here(error) from None

    async def cancellation(self, session_id: str) -> dict[str, Any]:
        placed = self._placement.find(session_id)
        if placed is None:
            return no_cancellation()
        answer: dict[str, Any] = await self._ask(placed, "cancellation")
        return answer

    async def queued(self, session_id: str) -> QueuedPrompts:
        placed = self._placement.find(session_id)
        if placed is None:
            stored = await self._sessions.runtime.store.read_document(session_id, QUEUE) or []
            return QueuedPrompts(stored, held=len(stored))
        return QueuedPrompts(**await self._ask(placed, "queued"))

    async def remove_queued(self, session_id: str, position: int) -> str:
        placed = await self._loaded(session_id)
        return str(await self._ask(placed, "remove_queued", position=position))

    # --- questions

    async def approvals(self, session_id: str, *, finished: bool = False) -> list[dict[str, Any]]:
        placed = self._placement.find(session_id)
        if placed is None:
            return []
        answer: list[dict[str, Any]] = await self._ask(placed, "approvals", finished=finished)
        return answer

    async def resolve_approval(
        self, session_id: str, request_id: str, decision: str, *, reason: str | None, remember: Remember, by: str
    ) -> dict[str, Any]:
        placed = await self._loaded(session_id)
        answer: dict[str, Any] = await self._ask(
            placed,
            "resolve_approval",
            request_id=request_id,
            decision=decision,
            reason=reason,
            remember=remember,
            by=by,
        )
        return answer

    # --- beside turns

    async def inspect(self, session_id: str, part: Part) -> list[dict[str, Any]]:
        placed = await self._loaded(session_id)
        answer: list[dict[str, Any]] = await self._ask(placed, "inspect", part=part)
        return answer

    async def choose_mode(self, session_id: str, name: str | None) -> dict[str, Any]:
        placed = await self._loaded(session_id)
        answer: dict[str, Any] = await self._ask(placed, "choose_mode", name=name)
        return answer

    async def compact(self, session_id: str) -> Compaction:
        placed = await self._loaded(session_id)
        return Compaction.from_json(await placed.worker.call("compact", session_id=session_id))

    async def _perform(self, session_id: str, method: str, arguments: Mapping[str, Any]) -> Any:
        """Do one of the acts where the session is, else here."""
        async with self._placement.alone(session_id):
            if method == "change_profile":
                await self._leave_for_change(session_id, cancel=bool(arguments.get("cancel")))
            worker = self._placement.find_tree(await self._root_of(session_id))
            if worker is None and method in _LOADING_MODULES:
                return await self._switch(session_id, method, arguments)
            if worker is None:
                return await acts_of(self._sessions)[method](session_id, **arguments)
            await worker.wait_until_free(self._patience_s)
            answer = await worker.call("perform", session_id=session_id, method=method, arguments=arguments)
            if (placed := self._placement.find(session_id)) is not None:
                placed.renumber()
            return answer

    async def _switch(self, session_id: str, method: str, arguments: Mapping[str, Any]) -> Any:
        """Change what a session runs that is not loaded, where the modules that it runs then can be loaded."""
        if method == "change_profile":
            plan = await self._sessions.plan_with(session_id, arguments["profile"])
        else:
            plan = await self._sessions.runtime.store.read_plan(session_id)
        return await self._placement.perform_apart(session_id, plan, method, arguments)

    async def _root_of(self, session_id: str) -> str:
        if (placed := self._placement.find(session_id)) is not None:
            return placed.root_id
        return (await self._sessions.reader.get(session_id)).root_id

    async def _leave_for_change(self, session_id: str, *, cancel: bool) -> None:
        """Let a session leave its worker after its turns, since what it runs next belongs into another one."""
        placed = self._placement.find(session_id)
        if placed is None:
            return
        if cancel and placed.submissions:
            await self.cancel(session_id, immediate=True)
        while placed.submissions:
            await asyncio.wait([one.result for one in placed.submissions.values()])
        await self._placement.unload(session_id)

    async def replay(self, session_id: str, **options: Any) -> dict[str, Any]:
        worker = await self._placement.borrow(session_id)
        try:
            answer: dict[str, Any] = await worker.call("replay", session_id=session_id, options=options)
        finally:
            worker.loading -= 1
        return answer

    def _hear_own(self, event: Event) -> None:
        """Pass on what happens to a session that is not loaded."""
        self._on_event(live_event(described_event(event), encoded_for_others(event)))


_INTERVAL_S = 0.5
_FAR = 2
"""A worker with so many times the memory that it may have is not waited for."""


class Supervision:
    """Watches the workers of a placement."""

    def __init__(self, placement: Placement, settings: WorkerSettings) -> None:
        self._placement, self._idle_s = placement, settings.idle_minutes * 60
        self._limit = settings.memory_limit_mb << 20
        self._blocked: set[WorkerProcess] = set()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            workers = self._placement.pool.workers
            self._blocked.intersection_update(workers)
            for worker in workers:
                if not worker.is_stopping:
                    self._look_at(worker)

    def _look_at(self, worker: WorkerProcess) -> None:
        self._report_blocked(worker)
        if worker.rss_bytes > _FAR * self._limit:
            logger.error("worker %d has %d MB of memory and is killed", worker.pid, worker.rss_bytes >> 20)
            self._placement.begin(worker.kill())
        elif worker.rss_bytes > self._limit and not worker.is_retiring:
            logger.warning(
                "worker %d has %d MB of memory: it ends when its turns have ended", worker.pid, worker.rss_bytes >> 20
            )
            worker.is_retiring = True
        if worker.has_work:
            worker.idle_since = time.monotonic()
        if worker.is_retiring:
            self._empty(worker)
        elif time.monotonic() - worker.idle_since > self._idle_s:
            logger.info("worker %d has had nothing to do for %.0f s", worker.pid, self._idle_s)
            self._placement.begin(self._placement.pool.retire(worker))

    def _empty(self, worker: WorkerProcess) -> None:
        """Let the sessions of a worker leave that have nothing to do, and end it after the last one."""
        if not worker.has_work:
            self._placement.begin(self._placement.pool.retire(worker))
            return
        for placed in tuple(self._placement.placed.values()):
            if placed.worker is worker and not placed.is_busy and not placed.is_leaving:
                placed.is_leaving = True
                self._placement.begin(self._placement.unload_idle(placed))

    def _report_blocked(self, worker: WorkerProcess) -> None:
        if not worker.is_blocked:
            self._blocked.discard(worker)
        elif worker not in self._blocked:
            self._blocked.add(worker)
            logger.warning("worker %d (%s) is blocked: a module keeps its event loop", worker.pid, worker.serves)
