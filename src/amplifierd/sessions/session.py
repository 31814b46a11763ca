"""An open session, as applications drive it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Literal, Self

from amplifier_core import ModuleCoordinator
from amplifier_system.tasks import Opening, start_task
from amplifierd.limits import Limits
from amplifierd.sessions.conversation.between_turns import append_message, compact_now, switch
from amplifierd.sessions.conversation.compaction import Compaction
from amplifierd.sessions.conversation.interruption import RepairReport
from amplifierd.sessions.conversation.transcript import new_message
from amplifierd.sessions.events.announcements import STATUS
from amplifierd.sessions.events.session_status import closed
from amplifierd.sessions.events.tree_events import Event, Subscription
from amplifierd.sessions.layers.client_turns import ClientTurn, finish_reason
from amplifierd.sessions.questions.approvals import ApprovalQueue
from amplifierd.store.protocol import Message
from amplifierd.store.record import Activity, SessionRecord

from .runner import ExecutionRunner
from .session_setup import SessionSetup
from .turn_result import TurnResult
from .unread_keys import UnreadKey


@dataclass(frozen=True)
class SubmittedPrompt:
    """A prompt that has its place: `run` is awaited once, and returns what came of its turn."""

    is_queued: bool
    run: Callable[[], Awaitable[TurnResult]]


class Session:
    """One open session: prompts in, turns out. It is held by this process until everyone who opened it has closed it.

    Whoever opens it has a `Session` of their own; they share the runner and the queue of prompts.
    """

    def __init__(self, runner: ExecutionRunner, close: Callable[[str], Awaitable[None]]) -> None:
        self._runner, self._close, self._queue = runner, close, runner.queue
        self._is_closed = False

    def shared(self) -> Session:
        """Return the same session for one more user."""
        return Session(self._runner, self._close)

    def __repr__(self) -> str:
        return f"<Session {self.session_id} {self.activity}>"

    @property
    def session_id(self) -> str:
        return self._runner.session_id

    @property
    def record(self) -> SessionRecord:
        """What is stored about it, as of the last change."""
        return self._runner.record

    @property
    def activity(self) -> Activity | None:
        """What it does at this moment; None while its modules are not loaded."""
        return self._runner.activity

    @property
    def repaired(self) -> RepairReport:
        """What had to be repaired when it was opened; empty when nothing had."""
        return self._runner.repaired

    @property
    def unread_keys(self) -> tuple[UnreadKey, ...]:
        """The keys in its configuration that its modules do not read."""
        return self._runner.unread_keys

    @property
    def approvals(self) -> ApprovalQueue:
        """The questions of this session and its children."""
        return self._runner.tree.approvals

    @property
    def runner(self) -> ExecutionRunner:
        return self._runner

    # --- turns

    async def execute(
        self,
        prompt: str,
        *,
        metadata: Mapping[str, Any] | None = None,
        images: Sequence[Mapping[str, Any]] = (),
        correlation_id: str | None = None,
        queue: bool = False,
        priority: int = 0,
        deadline_s: float | None = None,
        timeout_s: float | None = None,
    ) -> TurnResult:
        """Run a prompt to its end. With `queue` it waits for a running turn; after `timeout_s` it is ended.

        Of prompts that wait, the one with the highest `priority` is next; one that has waited for `deadline_s` is given
        up.

        What goes wrong inside the turn is in the result.

        Raises:
            ExecutionInProgressError: a turn is running, and `queue` is not set.
            QueueFullError: too many prompts wait.
            TurnDeadlineError: it did not begin within `deadline_s`.
            TurnTimeoutError: it took longer than `timeout_s`; the session stays usable.
            HoldLostError: another process has taken the session over.
            SessionStateError: the session is closed.
        """
        submitted = self.submit(
            prompt,
            metadata=metadata,
            images=images,
            correlation_id=correlation_id,
            queue=queue,
            priority=priority,
            deadline_s=deadline_s,
            timeout_s=timeout_s,
        )
        return await submitted.run()

    def submit(
        self, prompt: str, *, queue: bool = False, priority: int = 0, deadline_s: float | None = None, **options: Any
    ) -> SubmittedPrompt:
        """Take the session's turn, or a place in its queue, for a prompt; what it returns is then run by the caller.

        Takes what `execute` takes, and `client` for a client that runs tools of its own; raises at once what keeps the
        prompt from being run. In the queue a higher `priority` goes first; after `deadline_s` there `run` raises
        `TurnDeadlineError`.
        """
        self._require_open()
        place = self._queue.reserve(prompt, may_wait=queue, priority=priority, session_id=self.session_id)

        async def run() -> TurnResult:
            async with self._queue.turn(place, deadline_s):
                return await self._execute(prompt, **options)

        return SubmittedPrompt(is_queued=not place.turn.done(), run=run)

    async def _execute(
        self,
        prompt: str,
        metadata: Mapping[str, Any] | None = None,
        images: Sequence[Mapping[str, Any]] = (),
        correlation_id: str | None = None,
        timeout_s: float | None = None,
        client: ClientTurn | None = None,
    ) -> TurnResult:
        if timeout_s is None:
            timeout_s = self._runner.runtime.settings.sessions.turn_timeout_seconds
        async with asyncio.timeout(timeout_s) as limit:
            if client is None:
                return await self._runner.execute(prompt, correlation_id, metadata, images=images, limit=limit)
            async with self._runner.client_turns.turn(await self.load(), client) as handed:
                result = await self._runner.execute(prompt, correlation_id, metadata, images=images, limit=limit)
            return replace(result, client_calls=tuple(handed), finish_reason=finish_reason(result, handed))

    def _require_open(self) -> None:
        if self._is_closed:
            raise closed(self.session_id)

    async def stream(
        self, prompt: str, *, queue: bool = False, priority: int = 0, deadline_s: float | None = None, **options: Any
    ) -> AsyncGenerator[Event, None]:
        """Run a prompt and yield its events, those of its children included; the last one is `execution:done`.

        Takes what `execute` takes. While it waits for its turn nothing comes. Whoever stops reading stops the turn.
        """
        self._require_open()
        place = self._queue.reserve(prompt, may_wait=queue, priority=priority, session_id=self.session_id)
        state: Literal["waiting", "begun", "running", "done"] = "waiting"

        def belongs(event: Event) -> bool:
            nonlocal state
            if event["session_id"] == self.session_id:
                if event["event"] == "user_message:saved" and state == "begun":
                    state = "running"
                elif event["event"] == STATUS and state == "begun":
                    return False  # that it begins to work is no part of the turn
                elif event["event"] == "execution:done" and state == "running":
                    state = "done"
                    return True
            return state in ("begun", "running")

        watching = self.subscribe(belongs)

        async def run() -> None:
            nonlocal state
            async with self._queue.turn(place, deadline_s):
                state = "begun"
                await self._execute(prompt, **options)

        running = start_task(run())
        running.add_done_callback(lambda done: watching.close())
        try:
            async for event in watching:
                yield event
            await running
        finally:
            if not running.done():
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    def subscribe(self, wants: Callable[[Event], bool] | None = None) -> Subscription:
        """Watch the events of this session and its children from now on."""
        return self._runner.tree.events.subscribe(wants)

    async def steer(self, text: str) -> dict[str, Any]:
        """Let a text reach the running turn before its next provider call.

        Raises:
            NothingToSteerError: no turn is running.
            SteeringUnsupportedError: the orchestrator takes no steering.
        """
        return await self._runner.steer(text)

    async def cancel(self, *, immediate: bool = False) -> dict[str, Any]:
        """Stop the running turn, after the tools in flight or at once; returns `{state, running_tools}`."""
        return await self._runner.cancel(immediate=immediate)

    def queued(self) -> list[str]:
        """Return the prompts in the queue, the next one first."""
        return self._queue.prompts()

    @property
    def held(self) -> int:
        """How many of the queued prompts, the first ones, are held: the process that they waited in has ended.

        They do not run by themselves. One is held no longer when it is taken out, or sent again.
        """
        return self._queue.held

    async def remove_queued(self, position: int) -> str:
        """Take a prompt out of the queue; the first one has position 1."""
        taken = self._queue.remove(position)
        await self._queue.save()
        return taken

    async def save_queue(self) -> None:
        """Return when the prompts in the queue are stored."""
        await self._queue.save()

    # --- beside turns

    async def load(self) -> ModuleCoordinator:
        """Return what the modules are mounted on; those of a session that was idle for long are loaded again."""
        return (await self._runner.load()).session.coordinator

    async def messages(self) -> list[Message]:
        """Return the transcript."""
        return await self._runner.runtime.store.read_messages(self.session_id)

    async def set_limits(self, limits: Mapping[str, Any] | Limits | None) -> None:
        """Put other limits in place, for this session and all its children together.

        Those of an agent's session hold for the whole tree while it is open, and only narrow what the root allows.
        """
        await self._runner.change(limits=Limits.read(limits).to_json() or None)

    async def change_plan(
        self,
        setup: SessionSetup,
        plan: Mapping[str, Any],
        changes: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        cancel: bool,
    ) -> SessionRecord:
        """Go on with another plan once the running turn has ended, or is cancelled."""
        if cancel:
            await self._runner.cancel(immediate=True)
        async with self._queue.turn(self._queue.reserve(None, may_wait=True, session_id=self.session_id)):
            return await switch(self._runner, setup, plan, changes, facts)

    async def compact(self) -> Compaction:
        """Leave older parts of the conversation out of what the model sees; the session keeps all of them.

        Raises:
            ExecutionInProgressError: a turn is running.
        """
        return await compact_now(self._runner)

    async def append_message(self, role: str, content: Any, **facts: Any) -> Message:
        """Add a message to the conversation without running a turn; `facts` are `agent` and `token_count`.

        Raises:
            InvalidMessageError: its role or its content cannot be used.
            ExecutionInProgressError: a turn is running.
        """
        return await append_message(self._runner, new_message(role, content, **facts))

    async def close(self) -> None:
        """Give the session back. The last one who does ends the modules; a running turn is cancelled then."""
        if not self._is_closed:
            self._is_closed = True
            await self._close(self.session_id)

    def turn_away(self) -> None:
        """Refuse every prompt that waits: the session is being closed."""
        self._queue.close(closed(self.session_id))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


class SessionOpening(Opening[Session]):
    """A session that is about to be opened: `await` it, or `async with` it, which also closes it."""

    def __init__(self, opening: Coroutine[Any, Any, Session]) -> None:
        super().__init__(opening, lambda session: session.close())
