"""Ctrl-C while a turn runs."""

import asyncio
import signal
from typing import Any

from amplifier_cli.attended_session import Interrupts
from amplifierd.client.daemon_client import DaemonLostError


class Gone:
    """A session whose daemon has ended."""

    async def cancel(self, *, immediate: bool = False) -> dict[str, Any]:
        raise DaemonLostError("the daemon has ended")


async def test_that_a_turn_cannot_be_stopped_is_told_in_a_line() -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    with Interrupts(Gone(), told.put_nowait) as interrupts:
        signal.raise_signal(signal.SIGINT)
        async with asyncio.timeout(10):
            line = await told.get()

    assert interrupts.count == 1
    assert line == "it cannot be stopped: the daemon has ended"
