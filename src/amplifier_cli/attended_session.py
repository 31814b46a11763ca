"""A session that someone attends at the terminal, wherever it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .interrupts import Cancellable

if TYPE_CHECKING:
    from amplifierd.checkpoints import Changes, UndoResult
    from amplifierd.session_store.protocol import Message
    from amplifierd.session_store.record import Activity, SessionRecord
    from amplifierd.sessions.compaction import Compaction
    from amplifierd.sessions.request_part import RequestPart
    from amplifierd.sessions.turn_result import TurnResult
    from amplifierd.sessions.unread_keys import UnreadKey

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
        """Whether a turn had been interrupted when it was opened."""
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

    # --- beside turns

    async def tools(self) -> Sequence[Mapping[str, Any]]: ...

    async def last_request(self) -> Sequence[RequestPart]: ...

    async def change_profile(self, profile: str) -> None: ...

    async def change_agent(self, **wanted: Any) -> None: ...

    async def compact(self) -> Compaction: ...

    async def rename(self, name: str) -> None: ...

    async def changes(self, turn: int) -> Changes: ...

    async def undo(self, turn: int, *, force: bool = False) -> UndoResult | None: ...

    async def fork(self, turn: int | None = None) -> str: ...

    async def close(self) -> None: ...
