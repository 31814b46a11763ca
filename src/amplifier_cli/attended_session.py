"""A session that someone attends at the terminal, wherever it runs."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import start_task

if TYPE_CHECKING:
    from amplifier_system.permission_levels import PermissionLevel
    from amplifierd.checkpoints import Changes, UndoResult
    from amplifierd.sessions.conversation.compaction import Compaction
    from amplifierd.sessions.layers.request_parts import RequestPart
    from amplifierd.sessions.questions.lasting_approvals import RememberedApproval
    from amplifierd.sessions.turn_result import TurnResult
    from amplifierd.sessions.unread_keys import UnreadKey
    from amplifierd.store.protocol import Message
    from amplifierd.store.record import Activity, SessionRecord

# Ctrl-C while a turn runs: once stops the model, and tools when they are done; twice stops those at once, and a third
# time ends the process.


class Cancellable(Protocol):
    """What has a turn that can be stopped."""

    async def cancel(self, *, immediate: bool = False) -> dict[str, Any]: ...


def stopping_words(stopping: Mapping[str, Any], *, again: str = "Ctrl-C again") -> str:
    """Return what a request to stop leads to: which tools are still let come to their end."""
    running = [str(name) for name in stopping.get("running_tools") or ()]
    if stopping.get("state") != "graceful" or not running:
        return "stopping"
    return (
        f"{' and '.join(running)} may finish, then the turn ends; {again} stops {'it' if len(running) == 1 else 'them'}"
    )


class Interrupts:
    """Handles Ctrl-C, and the request to end, as long as a block runs. The session stays whole in any case."""

    def __init__(self, session: Cancellable, show: Callable[[str], None]) -> None:
        self._session, self._show = session, show
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.count = 0

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGINT, self.hit)
        self._loop.add_signal_handler(signal.SIGTERM, self._end)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)
        self._loop.remove_signal_handler(signal.SIGTERM)

    def hit(self) -> None:
        """Do what the next Ctrl-C does."""
        self.count += 1
        if self.count <= 2:
            self._cancel(immediate=self.count == 2)
        else:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)

    def _end(self) -> None:
        self.count = max(self.count, 2)
        self._cancel(immediate=True)

    def _cancel(self, *, immediate: bool) -> None:
        task = start_task(self._stop(immediate=immediate))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self, *, immediate: bool) -> None:
        try:
            self._show(stopping_words(await self._session.cancel(immediate=immediate)))
        except AmplifierError as error:
            self._show(f"it cannot be stopped: {error.message}")


Event = dict[str, Any]


class AttendedSession(Cancellable, Protocol):
    """What a run and a chat need of a session. One of this process and one of a daemon both have it."""

    @property
    def session_id(self) -> str: ...

    @property
    def record(self) -> SessionRecord:
        """What was stored about it when it was last looked at; `read` looks again."""
        ...

    @property
    def activity(self) -> Activity | None: ...

    @property
    def repaired(self) -> bool:
        """True if a turn had been interrupted when it was opened."""
        ...

    @property
    def unread_keys(self) -> tuple[UnreadKey, ...]:
        """The keys of its configuration that its modules do not read."""
        ...

    async def read(self) -> SessionRecord: ...

    async def messages(self) -> list[Message]: ...

    # --- turns

    def stream(self, prompt: str, **options: Any) -> AsyncIterator[Event]: ...

    async def execute(self, prompt: str, *, queue: bool = False, **options: Any) -> TurnResult: ...

    async def subscribe(self) -> AsyncIterator[Event]:
        """Watch what happens; once this is awaited, nothing is missed."""
        ...

    async def steer(self, text: str) -> dict[str, Any]: ...

    async def queued(self) -> Sequence[str]: ...

    async def remove_queued(self, position: int) -> str: ...

    async def cancel(self, *, immediate: bool = False, withdraw: bool = False) -> dict[str, Any]:
        """Stop the running turn; `withdraw` takes the queued prompts out before that and returns them."""
        ...

    # --- beside turns

    async def tools(self) -> Sequence[Mapping[str, Any]]: ...

    async def last_request(self) -> Sequence[RequestPart]: ...

    async def change_profile(self, profile: str) -> None: ...

    async def choose_level(self, level: PermissionLevel) -> None: ...

    async def remembered_approvals(self) -> Sequence[RememberedApproval]: ...

    async def revoke_approval(self, approval_id: str) -> None: ...

    async def change_agent(self, **wanted: Any) -> None: ...

    async def modes(self) -> dict[str, Any]: ...

    async def choose_mode(self, name: str | None) -> dict[str, Any]: ...

    async def skills(self) -> dict[str, Any]: ...

    async def compact(self) -> Compaction: ...

    async def rename(self, name: str) -> None: ...

    async def changes(self, turn: int) -> Changes: ...

    async def undo(self, turn: int, *, force: bool = False) -> UndoResult | None: ...

    async def fork(self, turn: int | None = None) -> str: ...

    async def close(self) -> None: ...
