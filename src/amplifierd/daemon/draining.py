"""Taking a member out of service: it starts nothing new, ends what it runs, and lets the others have its sessions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import start_task
from amplifierd.exceptions import MemberFencedError

if TYPE_CHECKING:
    from .daemon import Daemon

logger = logging.getLogger(__name__)

_AGAIN_S = 1.0


class Draining:
    """The way of one daemon out of its cluster. Afterwards it still answers, and passes everything on."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._running: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin, unless that was done."""
        if self._running is None:
            self._running = start_task(self._run())

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        daemon, cluster = self._daemon, self._daemon.cluster
        assert cluster is not None
        logger.info("the daemon is taken out of service")
        daemon.phase = "draining"
        steps = (
            *(cluster.set_draining, daemon.upkeep.stop, daemon.turns.drain, daemon.live.drain, daemon.live.release),
            cluster.leave,
        )
        try:
            for step in steps:
                await _until_done(step)
        except MemberFencedError as error:
            logger.warning("the daemon was fenced while it was taken out of service: %s", error)
        else:
            logger.info("the daemon is out of service: it has no sessions left")


async def _until_done(step: Callable[[], Awaitable[None]]) -> None:
    """Take a step, however often the store or a worker fails it.

    Raises:
        MemberFencedError: the others have taken everything already.
    """
    while True:
        try:
            await step()
        except MemberFencedError:
            raise
        except (AmplifierError, OSError) as error:
            logger.warning("the daemon is not out of service yet: %s", error)
            await asyncio.sleep(_AGAIN_S)
        else:
            return
