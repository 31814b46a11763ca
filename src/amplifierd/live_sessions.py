"""Sessions at work, wherever they run: what the HTTP layer asks of the processes behind it.

A session is live while a worker has it loaded. Whatever is asked of one that is not, and needs its modules, loads it
first. Nothing here belongs to a connection: a submitted turn runs to its end, whether or not a client waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

from .session_store.cursor import Cursor
from .session_store.record import Activity
from .sessions.approval import Remember
from .sessions.client_turns import ClientTurn
from .sessions.compaction import Compaction

Part = Literal["modules", "tools", "hooks", "capabilities", "agents"]
"""What can be looked at in a live session."""


@dataclass(frozen=True)
class TurnRequest:
    """A prompt, and how it is to be run. With `queue` it may wait for a running turn.

    Of those that wait, the one with the highest `priority` is next. One that has not begun after `deadline_s` never
    does; one that runs for longer than `timeout_s` is cancelled.
    """

    prompt: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    images: Sequence[Mapping[str, Any]] = ()
    queue: bool = False
    auto_resume: bool = False
    """True if a session that has ended goes on with it."""
    timeout_s: float | None = None
    deadline_s: float | None = None
    priority: int = 0
    client: ClientTurn | None = None
    """What a client wants that runs tools of its own."""
    correlation_id: str | None = None
    """By what the turn is known, where it was known before its session was asked; else it gets one there."""


@dataclass(frozen=True)
class QueuedPrompts:
    """The prompts in a session's queue; the first of them, `held` in number, do not run by themselves."""

    prompts: Sequence[str]
    held: int


@dataclass(frozen=True)
class SubmittedTurn:
    """A turn that was taken on. `result` is that of a `TurnResult`, as JSON, or raises what refused the turn.

    `is_repeated` says that it was taken on before, by the same key.
    """

    session_id: str
    correlation_id: str
    status: Literal["accepted", "queued"]
    result: asyncio.Future[dict[str, Any]]
    is_repeated: bool = False


class LiveEvent(NamedTuple):
    """An event of a live session. `envelope` is the whole of it as JSON, on one line, as clients get it.

    `cursor` says where it stands in its tree. It is None for what no session could store: that it was deleted, and the
    end of a turn that never ran or whose session could not be brought back.
    """

    name: str
    session_id: str
    root_session_id: str
    cursor: Cursor | None
    is_delta: bool
    envelope: bytes


OnEvent = Callable[[LiveEvent], None]
"""Hears every event of every live session, in order; it must not take long, and must not raise."""


@dataclass(frozen=True)
class WorkerState:
    """A process that sessions run in. One that is `blocked` has not shown a sign of life for some seconds."""

    worker_id: str
    pid: int
    status: Literal["ready", "blocked", "retiring"]
    serves: str
    sessions: int
    turns: int
    rss_bytes: int
    loop_lag_ms: float
    started_at: str


@dataclass(frozen=True)
class LiveState:
    """What is known about a live session without asking it."""

    session_id: str
    activity: Activity
    worker_id: str
    pending_approvals: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class LoadedState:
    """What was found when a session was loaded: whether a crash had left something to repair, which is told once, and
    the keys of its configuration that its modules do not read, as `{module_id, key, known}`."""

    is_repaired: bool = False
    unread_keys: Sequence[Mapping[str, Any]] = ()


class LiveSessions(Protocol):
    """Errors are those of the library (`amplifierd.exceptions`), whatever process they were raised in."""

    def state(self, session_id: str) -> LiveState | None:
        """Return what a session is doing, None when it is not loaded."""
        ...

    def states(self) -> Sequence[LiveState]: ...

    @property
    def loaded(self) -> int:
        """How many sessions are live."""
        ...

    def workers(self) -> Sequence[WorkerState]: ...

    async def load(self, session_id: str) -> LoadedState:
        """Load a session's modules; one that is live already stays as it is.

        Raises:
            SessionHeldError: another program holds it.
            ModuleLoadError: a module that it cannot do without is broken; the message is the kernel's.
        """
        ...

    async def unload(self, session_id: str) -> None:
        """End a session's modules, a running turn first; one that is not live is left alone."""
        ...

    async def submit(self, session_id: str, turn: TurnRequest) -> SubmittedTurn:
        """Reserve the session's turn, or a place in its queue, and run the prompt; returns as soon as it is reserved.

        Raises:
            ExecutionInProgressError, QueueFullError, SessionStateError, SessionHeldError: it was not taken on.
        """
        ...

    async def steer(self, session_id: str, text: str) -> dict[str, Any]: ...

    async def cancel(self, session_id: str, *, immediate: bool = False) -> dict[str, Any]:
        """Stop the running turn; returns `{state, running_tools}`, state `none` when nothing runs."""
        ...

    async def cancellation(self, session_id: str) -> dict[str, Any]: ...

    async def queued(self, session_id: str) -> QueuedPrompts: ...

    async def remove_queued(self, session_id: str, position: int) -> str: ...

    async def approvals(self, session_id: str, *, finished: bool = False) -> list[dict[str, Any]]: ...

    async def resolve_approval(
        self, session_id: str, request_id: str, decision: str, *, reason: str | None, remember: Remember, by: str
    ) -> dict[str, Any]: ...

    async def inspect(self, session_id: str, part: Part) -> list[dict[str, Any]]:
        """Load the session if need be, and list one kind of what is mounted in it."""
        ...

    async def compact(self, session_id: str) -> Compaction:
        """Load the session if need be, and leave older parts of the conversation out of what its model sees.

        Raises:
            ExecutionInProgressError: a turn is running.
        """
        ...

    async def perform(self, session_id: str, method: str, /, **arguments: Any) -> Any:
        """Call a method of `home.sessions` in the process that has the session, else in this one.

        For what changes a stored session and may find it live: `update`, `tag`, `end`, `truncate`,
        `delete_last_message`, `append_message`, `undo`, `change_profile`, `change_agent`, `delete`.
        """
        ...

    async def replay(self, session_id: str, **options: Any) -> dict[str, Any]:
        """Run a recorded session again, in a process of its own kind."""
        ...
