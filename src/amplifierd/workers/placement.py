"""Where sessions are: each live one is in one worker, together with its tree."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any
from weakref import WeakValueDictionary

from amplifier_core.mount_plan import MountPlan
from amplifier_system.tasks import start_task
from amplifierd.exceptions import HoldLostError, MemberFencedError, NotReadyError, SessionHeldError, SessionStateError
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.sessions.session_setup import Resolvers
from amplifierd.store.record import SessionRecord, checked_session_id

from .json_rpc import Hear, error_of
from .live_sessions import OnEvent
from .orphans import end_orphan
from .outbox import live_event
from .placed_session import PlacedSession
from .recovery import unpublished_end
from .worker_pool import WorkerPool
from .worker_process import WorkerProcess
from .worker_start import DescribeHome, secrets_for

logger = logging.getLogger(__name__)


class Placement:
    """Loads sessions into workers, and takes note of what workers tell of them.

    `recover` brings a session back whose worker has ended by itself. When there are as many workers as may be, a
    session waits `patience_s` for one to make room.
    """

    def __init__(
        self,
        sessions: Sessions,
        resolvers: Resolvers,
        describe_home: DescribeHome,
        on_event: OnEvent,
        recover: Callable[[PlacedSession], Coroutine[Any, Any, None]],
        *,
        patience_s: float,
    ) -> None:
        settings = sessions.runtime.settings
        self._sessions, self._resolvers, self._on_event, self._recover = sessions, resolvers, on_event, recover
        self._store, self._is_shared = sessions.runtime.store, not settings.store.is_files
        self.pool = WorkerPool(settings, describe_home, self.hears, self._ended, patience_s)
        self.placed: dict[str, PlacedSession] = {}
        self._most_loaded = settings.sessions.max_loaded
        self.is_closed = False
        self._abandoned: set[WorkerProcess] = set()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    def use(self, sessions: Sessions, resolvers: Resolvers, describe_home: DescribeHome) -> None:
        """Go on with sessions that have other settings; they are in the same store."""
        self._sessions, self._resolvers = sessions, resolvers
        self._most_loaded = sessions.runtime.settings.sessions.max_loaded
        self.pool.use(describe_home)

    def alone(self, session_id: str) -> asyncio.Lock:
        """Return the lock of a session: it is placed, given turns and changed by one at a time."""
        return self._locks.setdefault(checked_session_id(session_id), asyncio.Lock())

    def find(self, session_id: str) -> PlacedSession | None:
        """Return a session that is in a worker which has not ended."""
        placed = self.placed.get(session_id)
        return placed if placed is not None and not placed.worker.is_over else None

    def find_tree(self, root_id: str) -> WorkerProcess | None:
        """Return the worker that a tree is in."""
        workers = (one.worker for one in self.placed.values() if one.root_id == root_id)
        return next((worker for worker in workers if not worker.is_over), None)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start something in the background."""
        task = start_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def settle(self) -> None:
        """Wait for everything that was begun."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def abandon(self) -> None:
        """End every worker at once, with what is in it."""
        self._abandoned.update(self.pool.workers)
        await self.pool.abandon()

    # --- loading; the caller has the session's lock

    async def load(self, session_id: str) -> PlacedSession:
        """Have a session in a worker."""
        if (placed := self.find(session_id)) is not None:
            return placed
        self._check_open()
        record = await self._sessions.read_adopted(session_id)
        plan = await self._store.read_plan(session_id)
        secrets = await asyncio.to_thread(secrets_for, plan, os.environ, self._resolvers())
        worker = await self._worker_for(record, plan)
        try:
            found = await self._load_in(worker, session_id, secrets)
        finally:
            worker.loading -= 1
        worker.check_there()
        self._check_open()  # it may have begun to stop while the session was loaded
        placed = self.placed[session_id] = PlacedSession(session_id, worker, found)
        worker.sessions.add(session_id)
        self._unload_surplus()
        return placed

    def _check_open(self) -> None:
        """Raises `NotReadyError` when the daemon stops."""
        if self.is_closed:
            raise NotReadyError("the daemon is stopping", hint="try again when it is back")

    def _unload_surplus(self) -> None:
        """Let the sessions leave that have had nothing to do for longest, while more are loaded than may be."""
        surplus = len(self.placed) - self._most_loaded - sum(one.is_leaving for one in self.placed.values())
        for placed in tuple(self.placed.values()) if surplus > 0 else ():
            if surplus > 0 and not placed.is_busy and not placed.is_leaving:
                placed.is_leaving = True
                self.begin(self.unload_idle(placed))
                surplus -= 1

    async def _load_in(self, worker: WorkerProcess, session_id: str, secrets: Mapping[str, str]) -> dict[str, Any]:
        asked = {"session_id": session_id, "environment": secrets}
        try:
            data: dict[str, Any] = await worker.call("load", **asked)
        except SessionHeldError as error:
            if not await asyncio.to_thread(end_orphan, error.holder):
                raise
            data = await worker.call("load", **asked)
        return data

    async def _worker_for(self, record: SessionRecord, plan: Mapping[str, Any]) -> WorkerProcess:
        """Return where a session is loaded: with its tree, if that is at work, else with its kind."""
        if (together := self.find_tree(record.root_id)) is not None:
            together.loading += 1
            return together
        return await self.pool.take(worker_kind(record, plan))

    async def borrow(self, session_id: str) -> WorkerProcess:
        """Return a worker of a session's kind, with one more to load; the caller counts it."""
        record = await self._sessions.read_adopted(session_id)
        return await self.pool.take(worker_kind(record, await self._store.read_plan(session_id)))

    async def perform_apart(
        self, session_id: str, plan: Mapping[str, Any], method: str, arguments: Mapping[str, Any]
    ) -> Any:
        """Call a method of the home's sessions that loads the modules of a plan, in a worker for this alone."""
        secrets = await asyncio.to_thread(secrets_for, plan, os.environ, self._resolvers())
        worker = await self.pool.take(f"change of {session_id}")
        try:
            asked = {"session_id": session_id, "method": method, "arguments": arguments}
            return await worker.call("perform", **asked, environment=secrets)
        finally:
            worker.loading -= 1
            worker.is_retiring = True

    async def unload(self, session_id: str) -> None:
        """Let a session leave its worker, if it is in one."""
        if (placed := self.find(session_id)) is not None:
            await placed.worker.call("unload", session_id=session_id)

    async def unload_idle(self, placed: PlacedSession) -> None:
        """Let a session leave its worker, unless it has something to do again."""
        async with self.alone(placed.session_id):
            if self.find(placed.session_id) is placed and not placed.is_busy:
                await self.unload(placed.session_id)
            placed.is_leaving = False

    # --- what workers tell

    def hears(self) -> dict[str, Hear]:
        """Return what takes the notifications of workers."""
        return {
            "events": self._hear_events,
            "state": self._hear_state,
            "turn_ended": self._hear_turn_ended,
            "unloaded": self._hear_unloaded,
        }

    def _hear_events(self, events: Sequence[Sequence[Any]], lines: Sequence[bytes]) -> None:
        for described, envelope in zip(events, lines, strict=True):
            self._on_event(live_event(described, envelope))

    def _hear_state(self, session_id: str, **told: Any) -> None:
        placed = self.placed.get(session_id)
        if placed is None:
            return
        placed.told = told
        if told["activity"] is None and not placed.is_busy:  # its modules were unloaded, since it is idle for long
            self.begin(self.unload_idle(placed))

    def _hear_turn_ended(
        self,
        session_id: str,
        correlation_id: str,
        is_told: bool,
        result: dict[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        placed = self.placed.get(session_id)
        submission = placed.ended(correlation_id) if placed is not None else None
        if placed is None or submission is None:
            return
        self.placed[session_id] = self.placed.pop(session_id)  # those that rest longest come first
        failure = error_of(error) if error is not None else None
        if failure is not None and self._is_shared:  # a prompt that waited may still run elsewhere
            failure = self.seen_from_here(failure)
        if not is_told and not self._is_told_elsewhere(failure):
            self._on_event(unpublished_end(session_id, correlation_id, placed.root_id, failure, result=result))
        submission.settle(result, failure)

    def seen_from_here(self, error: Exception) -> Exception:
        """Return what an error means: a worker that ends with its daemon knows only that its sessions are closed."""
        if self.is_closed and isinstance(error, SessionStateError):
            return NotReadyError("the daemon is stopping", hint="try again when it is back")
        return error

    def _is_told_elsewhere(self, failure: Exception | None) -> bool:
        """True if another member has the session, or will, and tells how its turn ended."""
        return self._is_shared and isinstance(failure, HoldLostError | MemberFencedError | NotReadyError)

    def _hear_unloaded(self, session_id: str) -> None:
        placed = self.placed.pop(session_id, None)
        if placed is not None:
            placed.leave()

    def _ended(self, worker: WorkerProcess) -> None:
        """Take note of a worker that is not there any more."""
        lost = [placed for placed in self.placed.values() if placed.worker is worker]
        for placed in lost:
            del self.placed[placed.session_id]
        left = [one for placed in lost for one in placed.submissions.values()]
        if self.is_closed:
            for submission in left:
                submission.settle(None, NotReadyError("the daemon was stopped before the turn ended"))
        elif worker in self._abandoned:
            self._abandoned.discard(worker)
            for submission in left:
                submission.settle(
                    None, NotReadyError("others have taken the session over, and know how its turn ended")
                )
        elif lost:
            self.begin(self._bring_back(worker, lost))

    async def _bring_back(self, worker: WorkerProcess, lost: Sequence[PlacedSession]) -> None:
        """End what is left of a worker, and bring what was at work in it to another one."""
        await worker.kill()

        async def bring_back(placed: PlacedSession) -> None:
            async with self.alone(placed.session_id):
                await self._recover(placed)

        await asyncio.gather(*map(bring_back, lost))


def worker_kind(record: SessionRecord, plan: Mapping[str, Any]) -> str:
    """Return what a session's worker serves: a build, a bundle, or the sources of a plan."""
    if record.profile_name is not None:
        return f"{record.profile_name}@{record.build_id}"
    if record.bundle is not None:
        below = f" over {record.base_profile}@{record.build_id}" if record.base_profile is not None else ""
        return f"bundle {record.bundle}{below}"
    sources = sorted({json.dumps([entry.module_id, entry.source], default=str) for entry in MountPlan(plan).entries()})
    return f"plan {hashlib.sha256(json.dumps(sources).encode()).hexdigest()[:12]}"
