"""A daemon that comes up while something fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

from amplifierd import open_home
from amplifierd.daemon.daemon import Daemon
from amplifierd.exceptions import StoreUnavailableError
from amplifierd.turns.local_turn_queue import LocalTurnQueue


class LateTurns(LocalTurnQueue):
    """Turns whose store is away at first."""

    attempts = 0

    async def start(self) -> None:
        self.attempts += 1
        if self.attempts == 1:
            raise StoreUnavailableError("it is away")
        await super().start()


async def test_turns_that_cannot_be_started_are_started_later(tmp_path: Path) -> None:
    daemon = Daemon(open_home(tmp_path, offline=True))
    daemon.turns = turns = LateTurns(daemon.home.sessions, daemon.live)

    await daemon.start()
    try:
        await daemon.be_ready()
        assert any("it is away" in warning for warning in daemon.warnings)
        async with asyncio.timeout(10):
            while turns.attempts < 2 or any("it is away" in one for one in daemon.warnings):  # noqa: ASYNC110 - it pauses
                await asyncio.sleep(0.01)
    finally:
        await daemon.stop()
        await daemon.close()
    assert turns.attempts == 2
