"""Turns that were refused, by whichever member: those who watch here see them end as well.

Nothing is stored of them in their sessions, so anyone who waits for their ends would wait forever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from contextlib import suppress

from amplifier_system.supervisor import beat
from amplifierd.exceptions import StoreUnavailableError
from amplifierd.live_sessions import OnEvent
from amplifierd.workers.untold_end import untold_end

from .turn_rows import RefusedTurn, TurnRows
from .turn_text import refusal_of

logger = logging.getLogger(__name__)

_MOST = 1000
_AGAIN_S = 1.0
_BEAT_S = 10.0


class RefusedTurns:
    """Tells `on_end` how refused turns ended, some of them more than once; used in one event loop."""

    def __init__(self, rows: TurnRows, on_end: OnEvent) -> None:
        self._rows, self._on_end = rows, on_end
        self._heard: set[str] = set()
        self._is_unsure = True
        self._wake = asyncio.Event()

    def hear(self, turn_id: str) -> None:
        """Take note that a turn was refused; without an id, that some may have been."""
        if turn_id:
            self._heard.add(turn_id)
        else:
            self._is_unsure = True
        self._wake.set()

    async def keep_telling(self) -> None:
        """Tell of those that were heard of, and first of those that were refused a short time ago."""
        while True:
            beat()
            self._wake.clear()
            heard, self._heard = self._heard, set()
            is_unsure, self._is_unsure = self._is_unsure, False
            try:
                refused = await self._read(heard, is_unsure=is_unsure)
            except StoreUnavailableError as error:
                logger.warning("which turns were refused elsewhere is not known yet: %s", error)
                self._heard |= heard
                self._is_unsure = self._is_unsure or is_unsure
                self._wake.set()
                await asyncio.sleep(_AGAIN_S)
            else:
                for turn in refused:
                    self._on_end(untold_end(turn.session_id, turn.turn_id, turn.root_id, refusal_of(turn.result)))
            with suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await self._wake.wait()

    async def _read(self, heard: Collection[str], *, is_unsure: bool) -> list[RefusedTurn]:
        lately = await self._rows.refused_lately(_MOST) if is_unsure else []
        return [*lately, *(await self._rows.refused(heard) if heard else [])]
