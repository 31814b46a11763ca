"""What wakes the members of a store: word that something changed, never what; each looks for itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal, get_args

from psycopg import AsyncConnection, Notify, sql

from .database import Database

Channel = Literal["amplifier_turns", "amplifier_refusals", "amplifier_holds", "amplifier_cluster"]
CHANNELS: tuple[Channel, ...] = get_args(Channel)


class Notifications:
    """Wakes those who subscribed, in their own event loops; heard on the connection that renews the member's lease."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._subscribers: dict[Callable[[str], None], Channel] = {}

    def subscribe(self, channel: Channel, wake: Callable[[str], None]) -> Callable[[], None]:
        """Call `wake` with the word of every notification, and without one when some may have been missed.

        Returns what ends that. Only a process that is a member hears anything.
        """
        loop = asyncio.get_running_loop()

        def wake_here(word: str) -> None:
            loop.call_soon_threadsafe(wake, word)

        self._subscribers[wake_here] = channel
        return lambda: self._end(wake_here)

    async def notify(self, channel: Channel, word: str = "") -> None:
        async def select(connection: AsyncConnection) -> None:
            await connection.execute("SELECT pg_notify(%s, %s)", [channel, word])

        await self._database.finish(self._database.run(select))

    # --- in the database's event loop

    async def begin(self, connection: AsyncConnection) -> None:
        """Hear from a new connection; what was said before it was opened is lost."""
        for channel in CHANNELS:
            await connection.execute(sql.SQL("LISTEN {}").format(sql.Identifier(channel)))
        for wake in tuple(self._subscribers):
            self._wake(wake, "")

    async def hear(self, connection: AsyncConnection, seconds: float) -> None:
        """Pass on what comes within a time."""
        async for notification in connection.notifies(timeout=seconds):
            self._pass_on(notification)

    def _pass_on(self, notification: Notify) -> None:
        for wake, channel in tuple(self._subscribers.items()):
            if channel == notification.channel:
                self._wake(wake, notification.payload)

    def _wake(self, wake: Callable[[str], None], word: str) -> None:
        try:
            wake(word)
        except RuntimeError:  # its event loop is closed
            self._end(wake)

    def _end(self, wake: Callable[[str], None]) -> None:
        self._subscribers.pop(wake, None)
