"""The turns of a daemon that has its sessions to itself: they wait in the process that runs their session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from amplifier_system.tasks import start_task
from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.sessions.conversation.interrupted_turns import InterruptedTurn
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.stored_json import StoredFormat
from amplifierd.workers.live_sessions import LiveSessions, QueuedPrompts, SubmittedTurn, TurnRequest

from .turn_queue import TurnKey, follow, has_follow_up


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


logger = logging.getLogger(__name__)

_FORMAT = StoredFormat(version=1, private=True)


class FollowUpFile:
    """Implements `FollowUps` for a home that one daemon serves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, InterruptedTurn] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Know again what had not followed when the daemon ended."""
        try:
            stored = (await asyncio.to_thread(_FORMAT.read, self._path) or {}).get("follow_ups", [])
            self._known = {each["session_id"]: InterruptedTurn(**each) for each in stored}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, FormatUnsupportedError) as error:
            logger.warning(
                "%s cannot be read: sessions may wait for a person that were to go on: %s", self._path, error
            )

    async def keep(self, interrupted: Sequence[InterruptedTurn]) -> None:
        new = {one.session_id: one for one in interrupted if has_follow_up(one)}
        if new:
            self._known |= new
            await self._write()

    async def left(self) -> Sequence[InterruptedTurn]:
        return tuple(self._known.values())

    async def drop(self, interrupted: InterruptedTurn) -> None:
        if self._known.get(interrupted.session_id) == interrupted:
            del self._known[interrupted.session_id]
            await self._write()

    async def _write(self) -> None:
        """Write down what is to follow; a disk that takes nothing keeps nothing from following now."""
        async with self._writing:
            content = {"follow_ups": [asdict(one) for one in self._known.values()]}
            try:
                await asyncio.to_thread(_FORMAT.write, self._path, content)
            except OSError as error:
                logger.warning("%s cannot be written: %s", self._path, error)
