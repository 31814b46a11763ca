"""The sessions of a daemon, at work in processes of their own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from amplifierd.exceptions import NotReadyError
from amplifierd.home import Home
from amplifierd.live_sessions import (
    LiveEvent,
    LiveState,
    OnEvent,
    Part,
    Questions,
    SubmittedTurn,
    TurnRequest,
    WorkerState,
)
from amplifierd.session_store.record import SessionRecord, checked_session_id
from amplifierd.sessions.tree_events import Event, Subscription

from .error_transfer import error_of
from .inspection import no_cancellation
from .json_rpc import Hear
from .outbox import described_event
from .placed_session import PlacedSession
from .recovery import Recovery
from .transferred import RETURNS
from .worker_kind import worker_kind
from .worker_pool import WorkerPool
from .worker_process import WorkerProcess

logger = logging.getLogger(__name__)


class Workers:
    """Runs sessions in worker processes; implements `LiveSessions`. This process imports none of their modules.

    `on_event` hears every event of every session, those included that are changed in this process.
    """

    def __init__(self, home: Home, *, on_event: OnEvent = lambda event: None) -> None:
        self._home, self._on_event = home, on_event
        self._pool = WorkerPool(home, self._hears, self._ended)
        self._placed: dict[str, PlacedSession] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._recovering: set[asyncio.Task[None]] = set()
        self._watching: Subscription | None = None
        self._is_stopping = False

    async def start(self) -> None:
        """Come up; returns at once, and a first worker is started soon."""
        self._watching = self._home.sessions.subscribe(self._hear_own)
        self._pool.begin()

    async def stop(self) -> None:
        """Refuse new turns, end every session, and end the workers."""
        self._is_stopping = True
        await self._pool.stop()
        if self._recovering:
            await asyncio.wait(self._recovering)
        if self._watching is not None:
            self._watching.close()

    # --- looking

    def state(self, session_id: str) -> LiveState | None:
        placed = self._placed.get(session_id)
        return placed.state() if placed is not None else None

    def states(self) -> Sequence[LiveState]:
        return [placed.state() for placed in self._placed.values()]

    def workers(self) -> Sequence[WorkerState]:
        return [worker.state() for worker in self._pool.workers]

    # --- loading

    async def load(self, session_id: str, *, questions: Questions = "wait") -> LiveState:
        async with self._alone(session_id):
            return (await self._load(session_id, questions)).state()

    async def _load(self, session_id: str, questions: Questions = "wait") -> PlacedSession:
        """Have a session in a worker; the caller has its lock."""
        placed = self._placed.get(session_id)
        if placed is not None and not placed.worker.is_over:
            return placed
        self._refuse_when_stopping()
        worker = await self._worker_for(await self._home.sessions.runtime.store.read(session_id))
        try:
            state = await worker.call("load", session_id=session_id, questions=questions)
        finally:
            worker.loading -= 1
        placed = self._placed[session_id] = PlacedSession(session_id, worker, questions, state)
        worker.sessions.add(session_id)
        return placed

    async def _worker_for(self, record: SessionRecord) -> WorkerProcess:
        """Return where a session is loaded: with its tree, if that is at work, else with its kind."""
        together = next((one.worker for one in self._placed.values() if one.root_id == record.root_id), None)
        if together is not None and not together.is_over:
            together.loading += 1
            return together
        plan: Mapping[str, Any] = {}
        if record.profile_name is None and record.bundle is None:
            plan = await self._home.sessions.runtime.store.read_plan(record.session_id)
        return await self._pool.take(worker_kind(record, plan))

    async def unload(self, session_id: str) -> None:
        async with self._alone(session_id):
            placed = self._placed.get(session_id)
            if placed is not None and not placed.worker.is_over:
                await placed.worker.call("unload", session_id=session_id)

    # --- turns

    async def submit(self, session_id: str, turn: TurnRequest) -> SubmittedTurn:
        async with self._alone(session_id):
            return await self._submit(session_id, turn)

    async def _submit(self, session_id: str, turn: TurnRequest) -> SubmittedTurn:
        self._refuse_when_stopping()
        placed = await self._load(session_id)
        submission = placed.reserve(turn)
        try:
            answer = await placed.worker.call("submit", **submission.params())
        except (
            NotReadyError
        ):  # the worker ended; whether the turn had begun is found out when the session is brought back
            return SubmittedTurn(session_id, submission.correlation_id, "accepted", submission.result)
        except BaseException:
            placed.take_back(submission)
            raise
        return SubmittedTurn(session_id, submission.correlation_id, answer["status"], submission.result)

    async def steer(self, session_id: str, text: str) -> dict[str, Any]:
        placed = await self._loaded(session_id)
        answer: dict[str, Any] = await placed.worker.call("steer", session_id=session_id, text=text)
        return answer

    async def cancel(self, session_id: str, *, immediate: bool = False) -> dict[str, Any]:
        placed = self._placed.get(session_id)
        if placed is None:
            return {"state": "none", "running_tools": []}
        answer: dict[str, Any] = await placed.worker.call("cancel", session_id=session_id, immediate=immediate)
        return answer

    async def cancellation(self, session_id: str) -> dict[str, Any]:
        placed = self._placed.get(session_id)
        if placed is None:
            return no_cancellation()
        answer: dict[str, Any] = await placed.worker.call("cancellation", session_id=session_id)
        return answer

    async def queued(self, session_id: str) -> list[str]:
        placed = self._placed.get(session_id)
        if placed is None:
            return []
        answer: list[str] = await placed.worker.call("queued", session_id=session_id)
        return answer

    async def remove_queued(self, session_id: str, position: int) -> str:
        placed = await self._loaded(session_id)
        return str(await placed.worker.call("remove_queued", session_id=session_id, position=position))

    # --- questions

    async def approvals(self, session_id: str, *, finished: bool = False) -> list[dict[str, Any]]:
        placed = self._placed.get(session_id)
        if placed is None:
            return []
        answer: list[dict[str, Any]] = await placed.worker.call("approvals", session_id=session_id, finished=finished)
        return answer

    async def resolve_approval(
        self, session_id: str, request_id: str, decision: str, *, reason: str | None, remember: bool, by: str
    ) -> dict[str, Any]:
        placed = await self._loaded(session_id)
        answer: dict[str, Any] = await placed.worker.call(
            "resolve_approval",
            session_id=session_id,
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
        answer: list[dict[str, Any]] = await placed.worker.call("inspect", session_id=session_id, part=part)
        return answer

    async def perform(self, session_id: str, method: str, /, **arguments: Any) -> Any:
        async with self._alone(session_id):
            placed = self._placed.get(session_id)
            if placed is None or placed.worker.is_over:
                return await getattr(self._home.sessions, method)(session_id, **arguments)
            answer = await placed.worker.call("perform", session_id=session_id, method=method, arguments=arguments)
            placed.renumber()
            return RETURNS[method](answer)

    async def replay(self, session_id: str, **options: Any) -> dict[str, Any]:
        worker = await self._worker_for(self._home.sessions.get(checked_session_id(session_id)))
        try:
            answer: dict[str, Any] = await worker.call("replay", session_id=session_id, options=options)
        finally:
            worker.loading -= 1
        return answer

    async def _loaded(self, session_id: str) -> PlacedSession:
        async with self._alone(session_id):
            return await self._load(session_id)

    def _alone(self, session_id: str) -> asyncio.Lock:
        """Return the lock of a session: it is placed, given turns and changed by one at a time."""
        return self._locks.setdefault(checked_session_id(session_id), asyncio.Lock())

    def _refuse_when_stopping(self) -> None:
        if self._is_stopping:
            raise NotReadyError("the daemon is stopping", hint="try again when it is back")

    # --- what workers tell

    def _hears(self, worker: WorkerProcess) -> dict[str, Hear]:
        return {
            "events": self._hear_events,
            "state": self._hear_state,
            "turn_ended": self._hear_turn_ended,
            "unloaded": self._hear_unloaded,
        }

    def _hear_events(self, events: Sequence[Sequence[Any]]) -> None:
        for name, session_id, root_id, sequence, is_delta, envelope in events:
            self._on_event(LiveEvent(name, session_id, root_id, sequence, is_delta, envelope.encode()))

    def _hear_own(self, event: Event) -> bool:
        """Pass on what happens to a session that is not loaded."""
        name, session_id, root_id, sequence, is_delta, envelope = described_event(event)
        self._on_event(LiveEvent(name, session_id, root_id, sequence, is_delta, envelope.encode()))
        return False

    def _hear_state(self, session_id: str, **told: Any) -> None:
        placed = self._placed.get(session_id)
        if placed is not None:
            placed.told = told

    def _hear_turn_ended(
        self,
        session_id: str,
        correlation_id: str,
        result: dict[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        placed = self._placed.get(session_id)
        submission = placed.ended(correlation_id) if placed is not None else None
        if submission is not None:
            submission.settle(result, error_of(error) if error is not None else None)

    def _hear_unloaded(self, session_id: str) -> None:
        placed = self._placed.pop(session_id, None)
        if placed is not None:
            placed.leave()

    # --- workers that end by themselves

    def _ended(self, worker: WorkerProcess) -> None:
        lost = [placed for placed in self._placed.values() if placed.worker is worker]
        for placed in lost:
            del self._placed[placed.session_id]
        if worker.is_stopping:
            for submission in [one for placed in lost for one in placed.submissions.values()]:
                submission.settle(None, NotReadyError("the daemon was stopped before the turn ended"))
            return
        recovery = asyncio.create_task(self._recover(worker, lost))
        self._recovering.add(recovery)
        recovery.add_done_callback(self._recovering.discard)

    async def _recover(self, worker: WorkerProcess, lost: Sequence[PlacedSession]) -> None:
        """End what is left of a worker, and bring the sessions that were at work in it to another one."""
        await worker.kill()
        recovery = Recovery(self._home, self._load, self._submit)
        for placed in lost:
            async with self._alone(placed.session_id):
                await recovery.run(placed)
