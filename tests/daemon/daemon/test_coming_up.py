"""A daemon that comes up while something fails, or beside what it does not support."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from amplifierd import open_home
from amplifierd.exceptions import StoreUnavailableError
from amplifierd.server.daemon import Daemon
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


async def test_plug_ins_that_are_installed_and_not_loaded_are_named_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    info = tmp_path / "installed/plugin_chat-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-chat\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[amplifierd.plugins]\nchat = plugin_chat\n")
    monkeypatch.syspath_prepend(str(info.parent))
    daemon = Daemon(open_home(tmp_path / "home", offline=True))

    await daemon.start()
    try:
        async with asyncio.timeout(10):
            while "plug-in" not in caplog.text:  # noqa: ASYNC110 - it pauses
                await asyncio.sleep(0.01)
    finally:
        await daemon.stop()
        await daemon.close()

    assert "the plug-in chat of plugin-chat 1.2 is not loaded" in caplog.text
