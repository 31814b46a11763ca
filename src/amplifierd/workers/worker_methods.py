"""What a worker does when the daemon asks: sessions are opened through the home, and driven."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any

from amplifier_core.boundary import settle
from amplifier_core.exceptions import ModuleLoadError, describe
from amplifier_foundation.sources import Sources
from amplifier_system.tasks import start_task
from amplifierd.exceptions import ForbiddenError, NotReadyError, PromptRemovedError, SessionStateError
from amplifierd.home import Home
from amplifierd.paths import Paths
from amplifierd.sessions.events.tree_events import Event
from amplifierd.sessions.layers.client_turns import ClientTurn
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE
from amplifierd.sessions.module_record import choose_mode
from amplifierd.sessions.questions.approval import Approval, ApprovalDecision, DenyAll, LeaveOpen, Remember
from amplifierd.sessions.session import Session, SubmittedPrompt
from amplifierd.sessions.working_place import unfit_working_dir
from amplifierd.settings import Settings

from .inspection import INSPECTIONS, cancellation_of
from .json_rpc import Method, described_error
from .live_sessions import Part, acts_of, plain
from .orphans import WORKER
from .outbox import Outbox
from .worker_log import logging_about, mask_log, set_log_level

logger = logging.getLogger(__name__)

_CHANGING = ("session:", "approval:", TURN_DONE)
"""The beginnings of the names of events after which a session may do something else than before."""

_LOADING = 2
"""How many sessions are opened at a time: each keeps the event loop for long, and others are at work."""


class WorkerMethods:
    """The methods of one worker. `open` comes first; everything else is about one session of that home."""

    def __init__(self, *, at_stop: Callable[[], None]) -> None:
        self._at_stop = at_stop
        self._outbox: Outbox | None = None
        self._opened: Home | None = None
        self._sessions: dict[str, Session] = {}
        self._reported: dict[str, Mapping[str, Any]] = {}
        self._turns: set[asyncio.Task[None]] = set()
        self._begun: set[asyncio.Task[Any]] = set()
        self._is_stopping = False
        self._few = asyncio.Semaphore(_LOADING)
        self._unpublished: set[tuple[str, str]] = set()

    def begin(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def table(self) -> dict[str, Method]:
        """Return the methods by the names under which the daemon calls them."""
        return {
            "open": self.open,
            "load": self.load,
            "unload": self.unload,
            "submit": self.submit,
            "steer": self.steer,
            "cancel": self.cancel,
            "cancellation": self.cancellation,
            "queued": self.queued,
            "remove_queued": self.remove_queued,
            "approvals": self.approvals,
            "resolve_approval": self.resolve_approval,
            "inspect": self.inspect,
            "choose_mode": self.choose_mode,
            "compact": self.compact,
            "perform": self.perform,
            "replay": self.replay,
            "stop": self.stop,
        }

    # --- the home

    async def open(
        self,
        paths: Mapping[str, str],
        settings: Mapping[str, Any],
        shipped_collection: str | None,
        member_id: str | None = None,
    ) -> dict[str, Any]:
        """Open the home that this worker serves; it holds sessions in the name of that member, where there are any."""
        known = Paths(**{name: Path(path) for name, path in paths.items()})
        read = Settings.model_validate(settings)
        set_log_level(read.log_level)
        shipped = Path(shipped_collection) if shipped_collection else None
        home = Home(known, read, Sources(known.cache), shipped_collection=shipped, program=WORKER)
        self._opened = home.with_settings(read)
        if member_id is not None:
            self._home.sessions.runtime.store.belong_to(member_id)
        mask_log(self._home.sessions.runtime.secrets)
        self._home.sessions.listen(self._hear)
        return {}

    @property
    def _home(self) -> Home:
        if self._opened is None:
            raise SessionStateError("the worker has no home yet", hint="call open first")
        return self._opened

    @property
    def _out(self) -> Outbox:
        assert self._outbox is not None
        return self._outbox

    async def stop(self, grace_s: float) -> None:
        """Take on nothing more, stop the turns, gently for as long as the grace lasts, and end the process.

        The store is closed when nothing is left that could write: what was taken on before is waited for.
        """
        self._is_stopping = True
        for session in self._sessions.values():
            session.turn_away()
        for session in self._sessions.values():
            await session.cancel()
        if self._turns and grace_s > 0:
            await asyncio.wait(self._turns, timeout=grace_s)
        while self._sessions or self._turns or self._begun:
            await asyncio.gather(*(self.unload(session_id) for session_id in tuple(self._sessions)))
            if waiting := self._turns | self._begun:
                await asyncio.wait(waiting)
        await self._home.sessions.close()
        self._out.flush()
        asyncio.get_running_loop().call_soon(self._at_stop)

    @contextmanager
    def _taken_on(self) -> Iterator[None]:
        """Take on a request that works with sessions; a worker that stops waits for it to end.

        Raises:
            NotReadyError: the worker is stopping.
        """
        if self._is_stopping:
            raise _stopping()
        task = asyncio.current_task()
        assert task is not None
        self._begun.add(task)
        try:
            yield
        finally:
            self._begun.discard(task)

    # --- sessions

    async def load(self, session_id: str, environment: Mapping[str, str]) -> dict[str, Any]:
        """Open a session; one that is open stays as it is. `environment` has the secrets that its plan needs."""
        with self._taken_on():
            repaired = session_id not in self._sessions and await self._open_session(session_id, environment)
        self._report_state(session_id)
        self._out.flush()
        unread = [key.to_json() for key in self._session(session_id).unread_keys]
        return {**self._state(session_id), "repaired": repaired, "unread_keys": unread}

    async def _open_session(self, session_id: str, environment: Mapping[str, str]) -> bool:
        """Open a session, unless that was done meanwhile; True if it had to be repaired."""
        record = await self._home.sessions.runtime.store.read(session_id)
        if reason := unfit_working_dir(record.working_dir, self._home.paths):
            raise ForbiddenError(
                f"no session of a daemon works in {record.working_dir}: {reason}",
                hint="move it to the directory of a project, or continue it at a terminal: amplifier session resume",
            )
        self._learn(environment)
        try:
            with logging_about(session_id=session_id):
                async with self._few:
                    opened = await self._home.sessions.resume(session_id, approver=ClientsAnswer())
        except RuntimeError as error:  # the kernel's word for a module that it cannot do without
            raise ModuleLoadError(describe(error)) from error
        if self._is_stopping:
            await opened.close()
            raise _stopping()
        if session_id in self._sessions:
            await opened.close()
            return False
        self._sessions[session_id] = opened
        return bool(opened.repaired)

    def _learn(self, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)  # where the SDKs of vendors look for them
        self._home.sessions.runtime.learn(environment)

    async def unload(self, session_id: str) -> None:
        """Close a session; a running turn is cancelled first."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            await session.close()
        self._report_gone(session_id)

    async def submit(
        self,
        session_id: str,
        correlation_id: str,
        prompt: str,
        metadata: Mapping[str, Any],
        images: Sequence[Mapping[str, Any]],
        queue: bool,
        timeout_s: float | None,
        deadline_s: float | None,
        priority: int,
        client: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """Take a prompt on; `turn_ended` follows when its turn is over."""
        if self._is_stopping:
            raise _stopping()
        session = self._session(session_id)
        submitted = session.submit(
            prompt,
            metadata=metadata,
            images=images,
            correlation_id=correlation_id,
            queue=queue,
            timeout_s=timeout_s,
            deadline_s=deadline_s,
            priority=priority,
            client=ClientTurn(**client) if client is not None else None,
        )
        self._unpublished.add((session_id, correlation_id))
        turn = start_task(self._run(session_id, correlation_id, submitted, has_nobody=client is not None))
        self._turns.add(turn)
        turn.add_done_callback(self._turns.discard)
        if submitted.is_queued:
            await session.save_queue()
        return {"status": "queued" if submitted.is_queued else "accepted"}

    async def _run(self, session_id: str, correlation_id: str, submitted: SubmittedPrompt, *, has_nobody: bool) -> None:
        """Run a prompt to its end and tell how that was; `has_nobody` says that no one answers its questions."""
        nobody_answers.set(has_nobody)
        ended: dict[str, Any] = {"session_id": session_id, "correlation_id": correlation_id}
        try:
            with logging_about(**ended):
                ended["result"] = (await submitted.run()).to_json()
        except asyncio.CancelledError:
            removed = PromptRemovedError(f"the prompt was taken out of the queue of session {session_id}")
            ended["error"] = described_error(removed)
        except Exception as error:  # noqa: BLE001 - whatever ended it, waiting callers are told
            ended["error"] = described_error(error)
        ended["is_told"] = (session_id, correlation_id) not in self._unpublished
        self._unpublished.discard((session_id, correlation_id))
        self._report_state(session_id)
        self._out.put("turn_ended", ended)

    async def steer(self, session_id: str, text: str) -> dict[str, Any]:
        """Let a text reach the running turn."""
        return await self._session(session_id).steer(text)

    async def cancel(self, session_id: str, immediate: bool) -> dict[str, Any]:
        """Stop the running turn."""
        return await self._session(session_id).cancel(immediate=immediate)

    async def cancellation(self, session_id: str) -> dict[str, Any]:
        """Say how far the cancellation of the running turn is."""
        return cancellation_of(self._session(session_id))

    async def queued(self, session_id: str) -> dict[str, Any]:
        """List the prompts in the queue, and say how many of them are held."""
        session = self._session(session_id)
        return {"prompts": session.queued(), "held": session.held}

    async def remove_queued(self, session_id: str, position: int) -> str:
        """Take a prompt out of the queue."""
        return await self._session(session_id).remove_queued(position)

    async def approvals(self, session_id: str, finished: bool) -> list[dict[str, Any]]:
        """List the questions that wait, or all of them."""
        queue = self._session(session_id).approvals
        return [approval.to_dict() for approval in (queue.all() if finished else queue.pending())]

    async def resolve_approval(
        self, session_id: str, request_id: str, decision: str, reason: str | None, remember: Remember, by: str
    ) -> dict[str, Any]:
        """Answer a question."""
        queue = self._session(session_id).approvals
        answered = await queue.resolve(request_id, decision, reason=reason, remember=remember, by=by)
        return answered.to_dict()

    async def inspect(self, session_id: str, part: Part) -> list[dict[str, Any]]:
        """List what is mounted in a session."""
        session = self._session(session_id)
        await session.load()
        plan = await self._home.sessions.runtime.store.read_plan(session_id)
        found: list[dict[str, Any]] = await settle(INSPECTIONS[part](session, plan))
        return found

    async def choose_mode(self, session_id: str, name: str | None) -> dict[str, Any]:
        """Enter a mode, or leave the one that is on."""
        return await choose_mode(await self._session(session_id).load(), name)

    async def compact(self, session_id: str) -> dict[str, Any]:
        """Leave older parts of a conversation out of what the model sees."""
        return (await self._session(session_id).compact()).to_json()

    async def perform(
        self,
        session_id: str,
        method: str,
        arguments: Mapping[str, Any],
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Any:
        """Do one of the acts on a session; `environment` has the secrets that modules need which it loads."""
        acts = acts_of(self._home.sessions)
        if method not in acts:
            raise SessionStateError(f"{method!r} is not called on a session", hint=f"these are: {', '.join(acts)}")
        self._learn(environment)
        try:
            with self._taken_on():
                return plain(await acts[method](session_id, **arguments))
        except RuntimeError as error:  # the kernel's word for a module that it cannot do without
            raise ModuleLoadError(describe(error)) from error
        finally:
            self._notice_closed()
            self._report_state(session_id)

    async def replay(self, session_id: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Run a recorded session again."""
        with self._taken_on():
            result: dict[str, Any] = plain(await self._home.sessions.replay(session_id, **options))
            return result

    def _session(self, session_id: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionStateError(f"session {session_id} is not loaded in this worker", hint="load it")
        return session

    # --- what the daemon is told

    def _hear(self, event: Event) -> None:
        self._out.put_event(event)
        if event["event"] == TURN_DONE:
            self._unpublished.discard((event["session_id"], event["correlation_id"]))
        if event["event"].startswith(_CHANGING):
            self._report_state(event["session_id"])

    def _state(self, session_id: str) -> dict[str, Any]:
        session = self._sessions[session_id]
        pending = [approval.to_dict() for approval in session.approvals.pending()]
        return {
            "session_id": session_id,
            "root_session_id": session.record.root_id,
            "activity": session.activity,
            "turn_count": session.record.turn_count,
            "pending_approvals": pending,
        }

    def _report_state(self, session_id: str) -> None:
        """Tell what a session does, if it is not what was told last."""
        if session_id in self._sessions:
            state = self._state(session_id)
            if state != self._reported.get(session_id):
                self._reported[session_id] = state
                self._out.put_soon("state", state)

    def _report_gone(self, session_id: str) -> None:
        self._reported.pop(session_id, None)
        self._out.put("unloaded", {"session_id": session_id})

    def _notice_closed(self) -> None:
        """Let go of sessions that the library has ended."""
        for session_id in tuple(self._sessions):
            if not self._home.sessions.is_open(session_id):
                del self._sessions[session_id]
                self._report_gone(session_id)


def _stopping() -> NotReadyError:
    return NotReadyError("the worker is stopping", hint="try again in a moment")


nobody_answers: ContextVar[bool] = ContextVar("nobody_answers", default=False)
"""True if the turn that runs in this context was asked for by a client that cannot answer questions."""


class ClientsAnswer:
    """Lets a question wait for a client; in a turn that has no one to ask, it is denied."""

    async def decide(self, approval: Approval) -> ApprovalDecision:
        return await (DenyAll() if nobody_answers.get() else LeaveOpen()).decide(approval)
