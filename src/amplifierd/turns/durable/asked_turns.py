"""The turns whose ends this process waits for, wherever they run."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from amplifier_system.supervisor import beat
from amplifierd.exceptions import NotReadyError, StoreUnavailableError

from .turn_rows import TurnRows
from .turn_text import result_of

logger = logging.getLogger(__name__)

_LOOK_S = 2.0
"""How often to look for ends that no notification told, while one is waited for."""


class AskedTurns:
    """Settles futures with what came of turns; used in one event loop."""

    def __init__(self, rows: TurnRows) -> None:
        self._rows = rows
        self._futures: dict[str, asyncio.Future[dict[str, Any]]] = {}
        self._wake = asyncio.Event()

    def future(self, turn_id: str) -> asyncio.Future[dict[str, Any]]:
        """Return what is settled when the turn has ended."""
        if turn_id not in self._futures:
            self._futures[turn_id] = asyncio.get_running_loop().create_future()
        return self._futures[turn_id]

    def forget(self, turn_id: str) -> None:
        self._futures.pop(turn_id, None)

    def settle(self, turn_id: str, result: str) -> None:
        """Tell those who wait what came of a turn."""
        future = self._futures.pop(turn_id, None)
        if future is None or future.done():
            return
        try:
            future.set_result(result_of(result))
        except Exception as error:  # noqa: BLE001 - whatever ended it, those who wait for it are told
            future.set_exception(error)
            future.exception()  # whether anyone waits is not known here

    async def look(self) -> None:
        """Settle what has ended elsewhere."""
        if self._futures:
            for turn_id, result in (await self._rows.results(self._futures)).items():
                self.settle(turn_id, result)

    def wake(self) -> None:
        """Look now."""
        self._wake.set()

    async def keep_looking(self) -> None:
        """Look whenever it is said to, and from time to time."""
        while True:
            beat()
            self._wake.clear()
            try:
                await self.look()
            except StoreUnavailableError as error:
                logger.warning("what came of turns elsewhere is not known yet: %s", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await self._wake.wait()

    def close(self) -> None:
        """Turn everyone away who still waits; their turns are kept, and run elsewhere or later."""
        for turn_id, future in tuple(self._futures.items()):
            self.forget(turn_id)
            if not future.done():
                future.set_exception(
                    NotReadyError(
                        "the daemon is stopping, and the turn continues elsewhere", hint="ask again with the same key"
                    )
                )
                future.exception()
