"""Turns that ended with the process that ran them: marked and told, without loading the session's modules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from amplifierd.exceptions import SessionError
from amplifierd.problems import interrupted_document
from amplifierd.session_store.hold import Hold, Holder
from amplifierd.session_store.protocol import Message, SessionStore
from amplifierd.session_store.record import OnTakeover, SessionRecord, now

from .announcements import Announcements
from .interruption import BrokenTurn, find_broken_turn
from .uncounted import TURN_BEGUN, TURN_DONE, counted_until, is_in_turn

logger = logging.getLogger(__name__)

TAKEN_OVER = "session:taken_over"
CONTINUES = "continues"
"""In the metadata of a prompt: the turn that was interrupted, and that it goes on with."""

_AT_ONCE = 16
"""Each mark waits for the disk several times, and a daemon is ready after the last of them."""


@dataclass(frozen=True)
class InterruptedTurn:
    """A turn that was interrupted, and what is to follow by the session's `on_takeover`.

    Nothing follows the turn of an agent, nor one that had given its answer.
    """

    session_id: str
    turn: int | None = None
    action: OnTakeover | None = None


class InterruptedTurns:
    """Finds and marks interrupted turns. Whoever waits for the end of one is told it.

    What the turn left behind is repaired when the session is opened next; so is the turn of an agent, whose events are
    numbered with those of its root.
    """

    def __init__(self, store: SessionStore, holder: Holder, announcements: Announcements) -> None:
        self._store, self._holder, self._announcements = store, holder, announcements

    async def mark_all(self) -> Sequence[InterruptedTurn]:
        """Mark the interrupted turns of all abandoned sessions."""
        few = asyncio.Semaphore(_AT_ONCE)

        async def mark(session_id: str) -> InterruptedTurn | None:
            async with few:
                try:
                    return await self._mark(session_id)
                except (SessionError, OSError) as error:
                    logger.warning("session %s cannot be marked as interrupted: %s", session_id, error)
                    return None

        latest = await self._store.last_events(await self._store.abandoned(), (TURN_BEGUN, TURN_DONE))
        unended = [session_id for session_id, event in latest.items() if event["event"] == TURN_BEGUN]
        return [one for one in await asyncio.gather(*map(mark, unended)) if one is not None]

    async def take_over(self, session_id: str) -> InterruptedTurn | None:
        """Mark the interrupted turn of a session, if it has one, and let nobody hold it."""
        if (marked := await self._mark(session_id)) is not None:
            return marked
        await self._store.release(await self._store.acquire(session_id, self._holder))
        return None

    async def _mark(self, session_id: str) -> InterruptedTurn | None:
        record = await self._store.read(session_id)
        counted = counted_until(record, await self._store.last_seq(session_id))
        events = await self._store.read_events(session_id, after_seq=counted)
        if not is_in_turn(events):
            return None
        hold = await self._store.acquire(session_id, self._holder)
        try:
            messages = await self._store.read_messages(session_id)
            broken = find_broken_turn(messages, events, record.turn_count)
            if broken is None or record.root_id != session_id:
                await self._store.update(hold, last_error=interrupted_document(session_id))
                return InterruptedTurn(session_id)
            return await self._mark_turn(hold, record, messages, broken)
        finally:
            await self._store.release(hold)

    async def _mark_turn(
        self, hold: Hold, record: SessionRecord, messages: Sequence[Message], broken: BrokenTurn
    ) -> InterruptedTurn:
        done, number = broken.done(messages), broken.number
        told: list[tuple[str, dict[str, Any]]] = [(TURN_DONE, done)]
        changes: dict[str, Any] = {"last_error": interrupted_document(record.session_id)}
        action = None if done["status"] == "completed" else _action(record, messages, number)
        if action is not None:
            told.append((TAKEN_OVER, {"turn": number, "action": action}))
            changes["takeover"] = {"turn": number, "action": action, "at": now()}
        await self._store.update(hold, **changes)
        await self._announcements.tell(hold, record, *told, correlation_id=broken.correlation_id)
        return InterruptedTurn(record.session_id, number, action)


def _action(record: SessionRecord, messages: Sequence[Message], turn: int) -> OnTakeover:
    """Return what follows; what was interrupted twice is not continued by itself again."""
    said = (message.get("metadata") or {} for message in messages if message.get("turn") == turn)
    if record.on_takeover == "continue" and any(CONTINUES in metadata for metadata in said):
        return "ask"
    return record.on_takeover
