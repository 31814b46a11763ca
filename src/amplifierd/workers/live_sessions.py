"""Sessions at work, wherever they run: what the HTTP layer asks of the processes behind it.

A session is live while a worker has it loaded. Whatever is asked of one that is not, and needs its modules, loads it
first. Nothing here belongs to a connection: a submitted turn runs to its end, whether or not a client waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from typing import Any, Literal, NamedTuple, Protocol

from pydantic import BaseModel

from amplifier_core.utils import json_safe
from amplifierd.checkpoints import UndoResult
from amplifierd.sessions.conversation.compaction import Compaction
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.sessions.layers.checkpointing import Undone
from amplifierd.sessions.layers.client_turns import ClientTurn
from amplifierd.sessions.questions.approval import Remember
from amplifierd.store.cursor import Cursor
from amplifierd.store.protocol import Message
from amplifierd.store.record import Activity, SessionRecord, SessionState

Part = Literal["modules", "tools", "hooks", "capabilities", "agents", "routing", "mode", "skills"]
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
    def acts(self) -> SessionActs:
        """The acts on stored sessions, which may be live."""
        ...

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

    async def choose_mode(self, session_id: str, name: str | None) -> dict[str, Any]:
        """Load the session if need be, and enter a mode, or leave the one that is on.

        Raises:
            SessionStateError: the session has no modes, none of that name, or one that cannot work in it.
        """
        ...

    async def compact(self, session_id: str) -> Compaction:
        """Load the session if need be, and leave older parts of the conversation out of what its model sees.

        Raises:
            ExecutionInProgressError: a turn is running.
        """
        ...

    async def replay(self, session_id: str, **options: Any) -> dict[str, Any]:
        """Run a recorded session again, in a process of its own kind."""
        ...


Perform = Callable[[str, str, Mapping[str, Any]], Awaitable[Any]]
"""Performs an act on a session in the process that has it, and returns its result as plain data or as it is."""


class SessionActs:
    """What changes a stored session and may find it live: methods of `home.sessions`, done where the session is."""

    def __init__(self, perform: Perform) -> None:
        self._perform = perform

    async def append_message(self, session_id: str, role: str, content: Any, **facts: Any) -> Message:
        message: Message = await self._perform(
            session_id, "append_message", {"role": role, "content": content, **facts}
        )
        return message

    async def change_agent(self, session_id: str, *, cancel: bool = False, **wanted: Any) -> SessionRecord:
        return await self._changed(session_id, "change_agent", {**wanted, "cancel": cancel})

    async def change_profile(self, session_id: str, profile: str, *, cancel: bool = False) -> SessionRecord:
        return await self._changed(session_id, "change_profile", {"profile": profile, "cancel": cancel})

    async def delete(self, session_id: str, *, force: bool = False, forever: bool = False) -> None:
        await self._perform(session_id, "delete", {"force": force, "forever": forever})

    async def delete_last_message(self, session_id: str) -> Message | None:
        message: Message | None = await self._perform(session_id, "delete_last_message", {})
        return message

    async def end(self, session_id: str, status: SessionState = "completed", **details: Any) -> SessionRecord:
        return await self._changed(session_id, "end", {"status": status, **details})

    async def mark_stale(self, session_id: str, newer_build: str) -> SessionRecord:
        return await self._changed(session_id, "mark_stale", {"newer_build": newer_build})

    async def rename(self, session_id: str, name: str | None) -> SessionRecord:
        return await self._changed(session_id, "rename", {"name": name})

    async def revoke_approval(self, session_id: str, approval_id: str) -> None:
        await self._perform(session_id, "revoke_approval", {"approval_id": approval_id})

    async def tag(self, session_id: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> SessionRecord:
        return await self._changed(session_id, "tag", {"add": [*add], "remove": [*remove]})

    async def truncate(self, session_id: str, turn: int) -> SessionRecord:
        return await self._changed(session_id, "truncate", {"turn": turn})

    async def undo(
        self, session_id: str, turn: int, *, what: Undone = "both", force: bool = False
    ) -> UndoResult | None:
        done = await self._perform(session_id, "undo", {"turn": turn, "what": what, "force": force})
        if done is None or isinstance(done, UndoResult):
            return done
        names = ("restored", "foreign", "not_empty")
        return UndoResult(**{**done, **{name: tuple(done[name]) for name in names}})

    async def update(self, session_id: str, **changes: Any) -> SessionRecord:
        return await self._changed(session_id, "update", changes)

    async def _changed(self, session_id: str, act: str, arguments: Mapping[str, Any]) -> SessionRecord:
        return SessionRecord.model_validate(await self._perform(session_id, act, arguments))


def acts_of(sessions: Sessions) -> Mapping[str, Callable[..., Awaitable[Any]]]:
    """The acts of `SessionActs` by their names, on the sessions of this process."""
    return {
        "append_message": sessions.append_message,
        "change_agent": sessions.change_agent,
        "change_profile": sessions.change_profile,
        "delete": sessions.delete,
        "delete_last_message": sessions.delete_last_message,
        "end": sessions.end,
        "mark_stale": sessions.mark_stale,
        "rename": sessions.rename,
        "revoke_approval": sessions.revoke_approval,
        "tag": sessions.tag,
        "truncate": sessions.truncate,
        "undo": sessions.undo,
        "update": sessions.update,
    }


def plain(result: Any) -> Any:
    """A result as plain data, for another process."""
    if isinstance(result, BaseModel):
        return result.model_dump(mode="json")
    if hasattr(result, "to_json"):
        return json_safe(result.to_json())
    if is_dataclass(result) and not isinstance(result, type):
        return json_safe(asdict(result))
    return json_safe(result)
