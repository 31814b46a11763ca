"""What is to follow interrupted turns, in a file of the home: `state/follow_ups.json`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.sessions.interrupted_turns import InterruptedTurn
from amplifierd.stored_json import StoredFormat

from .follow_ups import has_follow_up

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
