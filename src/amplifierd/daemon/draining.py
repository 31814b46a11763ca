"""Taking a member out of service: it begins nothing new, ends what it runs, and lets the others have its sessions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from amplifier_core.exceptions import AmplifierError

if TYPE_CHECKING:
    from .daemon import Daemon

logger = logging.getLogger(__name__)


class Draining:
    """The way of one daemon out of its cluster. Afterwards it still answers, and passes everything on."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, unless that was done."""
        if self._running is None:
            self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        daemon, cluster = self._daemon, self._daemon.cluster
        assert cluster is not None
        logger.info("the daemon is taken out of service")
        daemon.phase = "draining"
        try:
            await cluster.set_draining()
            await daemon.upkeep.stop()
            await daemon.turns.drain()
            await daemon.live.drain()
            await daemon.live.release()
            await cluster.leave()
        except AmplifierError as error:
            logger.warning("the daemon could not be taken out of service: %s", error)
        else:
            logger.info("the daemon is out of service: it has no session any more")
