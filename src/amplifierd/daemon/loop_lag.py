"""How late the event loop is: what blocks it keeps every client waiting."""

from __future__ import annotations

import asyncio
import logging

logger = logging.getLogger(__name__)

_EVERY_S = 0.25
_LONG_S = 1.0


class LoopLag:
    """Measures again and again how much later than planned the loop comes round."""

    def __init__(self) -> None:
        self.last_s = 0.0
        self._measuring: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure from now on, on the loop that runs."""
        loop = asyncio.get_running_loop()
        self._measuring = loop.call_later(_EVERY_S, self._measure, loop, loop.time() + _EVERY_S)

    def stop(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()

    def _measure(self, loop: asyncio.AbstractEventLoop, planned: float) -> None:
        self.last_s = max(0.0, loop.time() - planned)
        if self.last_s > _LONG_S:
            logger.warning("the event loop was blocked for %.1f s", self.last_s)
        self.start()
