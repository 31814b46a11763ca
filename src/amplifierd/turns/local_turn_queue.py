"""The turns of a daemon that has its sessions to itself: they wait in the process that runs their session."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from amplifierd.live_sessions import LiveSessions, QueuedPrompts, SubmittedTurn, TurnRequest
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.sessions.interrupted_turns import InterruptedTurn

from .takeover import follow
from .turn_queue import TurnKey


class LocalTurnQueue:
    """Implements `TurnQueue` with the queue that every session has. Prompts that wait when the daemon ends are held."""

    keeps_keys = False

    def __init__(self, sessions: Sessions, live: LiveSessions) -> None:
        self._sessions, self._live = sessions, live
        self._following: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        interrupted = await self._sessions.mark_interrupted()
        self._begin(interrupted)

    async def drain(self) -> None:
        """Do nothing: there are no others."""

    async def stop(self) -> None:
        for task in self._following:
            task.cancel()
        await asyncio.gather(*self._following, return_exceptions=True)

    async def close(self) -> None:
        """Do nothing: what became of a turn is in its session."""

    async def submit(self, session_id: str, turn: TurnRequest, key: TurnKey | None = None) -> SubmittedTurn:
        return await self._live.submit(session_id, turn)

    async def waiting(self, session_id: str) -> QueuedPrompts:
        return await self._live.queued(session_id)

    async def remove(self, session_id: str, position: int) -> str:
        return await self._live.remove_queued(session_id, position)

    async def take_over(self, session_id: str) -> None:
        interrupted = await self._sessions.take_over(session_id)
        if interrupted is not None:
            await follow(interrupted, self._live, self.submit)

    def _begin(self, interrupted: Sequence[InterruptedTurn]) -> None:
        """Let sessions go on one after the other, while the daemon comes up."""

        async def go_on() -> None:
            for one in interrupted:
                await follow(one, self._live, self.submit)

        task = asyncio.create_task(go_on())
        self._following.add(task)
        task.add_done_callback(self._following.discard)
