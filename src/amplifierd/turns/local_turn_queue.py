"""The turns of a daemon that has its sessions to itself: they wait in the process that runs their session."""

from __future__ import annotations

from amplifierd.live_sessions import LiveSessions, QueuedPrompts, SubmittedTurn, TurnRequest


class LocalTurnQueue:
    """Implements `TurnQueue` with the queue that every session has. Prompts that wait when the daemon ends are held."""

    def __init__(self, live: LiveSessions) -> None:
        self._live = live

    async def submit(self, session_id: str, turn: TurnRequest) -> SubmittedTurn:
        return await self._live.submit(session_id, turn)

    async def waiting(self, session_id: str) -> QueuedPrompts:
        return await self._live.queued(session_id)

    async def remove(self, session_id: str, position: int) -> str:
        return await self._live.remove_queued(session_id, position)
