"""The turns of a daemon that has its sessions to itself: they wait in the process that runs their session."""

from __future__ import annotations

import asyncio

from amplifier_system.tasks import start_task
from amplifierd.live_sessions import LiveSessions, QueuedPrompts, SubmittedTurn, TurnRequest
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.sessions.interrupted_turns import InterruptedTurn

from .follow_up_file import FollowUpFile
from .follow_ups import follow
from .turn_queue import TurnKey


class LocalTurnQueue:
    """Implements `TurnQueue` with the queue that every session has. Prompts that wait when the daemon ends are held."""

    keeps_keys = False

    def __init__(self, sessions: Sessions, live: LiveSessions) -> None:
        self._sessions, self._live = sessions, live
        self._follow_ups = FollowUpFile(sessions.runtime.paths.follow_ups)
        self._following: asyncio.Task[None] | None = None

    async def start(self) -> None:
        await self._follow_ups.load()
        await self._sessions.mark_interrupted(self._follow_ups.keep)
        self._following = start_task(self._go_on())

    async def drain(self) -> None:
        """Do nothing: there are no others."""

    async def abandon(self) -> None:
        """Do nothing: no other process can have them."""

    async def stop(self) -> None:
        if self._following is not None:
            self._following.cancel()
            await asyncio.gather(self._following, return_exceptions=True)

    async def close(self) -> None:
        """Do nothing: what became of a turn is in its session."""

    async def submit(self, session_id: str, turn: TurnRequest, key: TurnKey | None = None) -> SubmittedTurn:
        return await self._live.submit(session_id, turn)

    async def waiting(self, session_id: str) -> QueuedPrompts:
        return await self._live.queued(session_id)

    async def remove(self, session_id: str, position: int) -> str:
        return await self._live.remove_queued(session_id, position)

    async def take_over(self, session_id: str) -> None:
        interrupted = await self._sessions.take_over(session_id, self._follow_ups.keep)
        if interrupted is not None:
            await self._follow(interrupted)

    async def _go_on(self) -> None:
        """Let sessions go on one after the other, while the daemon comes up."""
        for interrupted in await self._follow_ups.left():
            await self._follow(interrupted)

    async def _follow(self, interrupted: InterruptedTurn) -> None:
        await follow(interrupted, self._follow_ups, self._sessions.runtime.store, self._live, self.submit)
