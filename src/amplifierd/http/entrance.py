"""Where requests come in: a few each time the event loop comes round, so that they do not hold up everything else."""

from __future__ import annotations

import asyncio
from collections import deque

AT_A_TIME = 4
"""How many requests begin before events, answers and health checks have their turn."""


class Entrance:
    """Lets requests in, in the order in which they came."""

    def __init__(self) -> None:
        self._entered = 0
        self._crowd: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for one's turn, which is now unless there is a crowd."""
        loop = asyncio.get_running_loop()
        if self._entered == AT_A_TIME:
            turn = loop.create_future()
            self._crowd.append(turn)
            await turn
            return
        self._entered += 1
        if self._entered == 1:
            loop.call_soon(self._come_round, loop)

    def _come_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._entered = 0
        while self._crowd and self._entered < AT_A_TIME:
            turn = self._crowd.popleft()
            if not turn.done():  # else it is no longer awaited
                turn.set_result(None)
                self._entered += 1
        if self._entered:
            loop.call_soon(self._come_round, loop)
