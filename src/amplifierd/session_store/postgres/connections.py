"""A few connections that are used again and again. One that is not needed for a while is closed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from amplifier_system.tasks import start_task


class Connections:
    """Lends connections, the one that was used last first; used in one event loop.

    At most `most` are open. Whoever needs another one waits for one to come back; an attempt to open one is made at
    once, and says what is wrong when it fails.
    """

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection]], *, most: int, idle_s: float) -> None:
        self._connect, self._idle_s = connect, idle_s
        self._few = asyncio.Semaphore(most)
        self._idle: list[tuple[AsyncConnection, float]] = []
        self._sweeping: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def lend(self) -> AsyncIterator[AsyncConnection]:
        """Lend a connection; one that breaks meanwhile is closed, and with it those that may be broken as well."""
        async with self._few:
            connection = self._idle.pop()[0] if self._idle else await self._connect()
            try:
                yield connection
            except (psycopg.OperationalError, psycopg.InterfaceError):
                await self._close_idle()
                raise
            finally:
                await self._take_back(connection)

    async def close(self) -> None:
        """Close those that are not in use."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        await self._close_idle()

    async def _take_back(self, connection: AsyncConnection) -> None:
        if connection.pgconn.transaction_status != TransactionStatus.IDLE:  # broken, or in the middle of something
            await connection.close()
            return
        self._idle.append((connection, asyncio.get_running_loop().time()))
        if self._sweeping is None:
            self._sweeping = start_task(self._sweep())

    async def _sweep(self) -> None:
        """Close, for as long as there are any, those that were not used for a while."""
        try:
            while self._idle:
                await asyncio.sleep(self._idle_s / 2)
                limit = asyncio.get_running_loop().time() - self._idle_s
                for entry in [entry for entry in self._idle if entry[1] < limit]:
                    self._idle.remove(entry)
                    await entry[0].close()
        finally:
            self._sweeping = None  # the next connection that is given back starts it again

    async def _close_idle(self) -> None:
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            await connection.close()
