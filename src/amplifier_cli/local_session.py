"""A session of this process, as it is attended at the terminal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from amplifierd.checkpoints import Changes, UndoResult
    from amplifierd.home import Home
    from amplifierd.session_store.protocol import Message
    from amplifierd.session_store.record import Activity, SessionRecord
    from amplifierd.sessions.compaction import Compaction
    from amplifierd.sessions.request_part import RequestPart
    from amplifierd.sessions.session import Session
    from amplifierd.sessions.turn_result import TurnResult
    from amplifierd.sessions.unread_keys import UnreadKey

    from .attended_session import Event


class LocalSession:
    """An open session and the home that it belongs to; what changes it as a whole goes through the home."""

    def __init__(self, home: Home, session: Session) -> None:
        self._sessions, self._session = home.sessions, session

    @property
    def session_id(self) -> str:
        return self._session.session_id

    @property
    def record(self) -> SessionRecord:
        return self._session.record

    @property
    def activity(self) -> Activity | None:
        return self._session.activity

    @property
    def repaired(self) -> bool:
        return bool(self._session.repaired)

    @property
    def unread_keys(self) -> tuple[UnreadKey, ...]:
        return self._session.unread_keys

    async def read(self) -> SessionRecord:
        return self._session.record

    async def messages(self) -> list[Message]:
        return await self._session.messages()

    # --- turns

    def stream(self, prompt: str, **options: Any) -> AsyncIterator[Event]:
        return self._session.stream(prompt, **options)

    async def execute(self, prompt: str, *, queue: bool = False, **options: Any) -> TurnResult:
        return await self._session.execute(prompt, queue=queue, **options)

    async def subscribe(self) -> AsyncIterator[Event]:
        return aiter(self._session.subscribe())

    async def steer(self, text: str) -> dict[str, Any]:
        return await self._session.steer(text)

    async def cancel(self, *, immediate: bool = False) -> dict[str, Any]:
        return await self._session.cancel(immediate=immediate)

    async def queued(self) -> Sequence[str]:
        return self._session.queued()

    async def remove_queued(self, position: int) -> str:
        return await self._session.remove_queued(position)

    # --- beside turns

    async def tools(self) -> list[dict[str, Any]]:
        tools = (await self._session.load()).get("tools") or {}
        return [{"name": name, "description": getattr(tool, "description", "")} for name, tool in tools.items()]

    async def last_request(self) -> Sequence[RequestPart]:
        requests = self._sessions.requests(self.session_id)
        return [stored.part for stored in requests[-1].parts] if requests else ()

    async def change_profile(self, profile: str) -> None:
        await self._sessions.change_profile(self.session_id, profile)

    async def change_agent(self, **wanted: Any) -> None:
        await self._sessions.change_agent(self.session_id, **wanted)

    async def compact(self) -> Compaction:
        return await self._session.compact()

    async def rename(self, name: str) -> None:
        await self._sessions.rename(self.session_id, name)

    async def changes(self, turn: int) -> Changes:
        return await self._sessions.changes(self.session_id, turn)

    async def undo(self, turn: int, *, force: bool = False) -> UndoResult | None:
        return await self._sessions.undo(self.session_id, turn, force=force)

    async def fork(self, turn: int | None = None) -> str:
        return (await self._sessions.fork(self.session_id, turn)).session_id

    async def close(self) -> None:
        await self._session.close()
