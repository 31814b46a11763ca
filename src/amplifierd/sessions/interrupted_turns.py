"""Turns that ended with the process that ran them: marked and told, without loading the session's modules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from amplifierd.exceptions import SessionError
from amplifierd.problems import interrupted_document
from amplifierd.session_store.hold import Holder
from amplifierd.session_store.protocol import SessionStore

from .announcements import Announcements
from .interruption import find_broken_turn
from .uncounted import TURN_BEGUN, TURN_DONE, counted_until, is_in_turn

logger = logging.getLogger(__name__)

_AT_ONCE = 16
"""Each mark waits for the disk several times, and a daemon is ready after the last of them."""


async def mark_interrupted(store: SessionStore, holder: Holder, announcements: Announcements) -> Sequence[str]:
    """Say in the record of every abandoned session whose turn had not ended that it was interrupted; returns their ids.

    Whoever waits for the end of the turn is told it. What the turn left behind is repaired when the session is opened
    next; so is the turn of an agent, whose events are numbered with those of its root.
    """
    few = asyncio.Semaphore(_AT_ONCE)

    async def mark(session_id: str) -> bool:
        async with few:
            try:
                return await _mark(store, session_id, holder, announcements)
            except (SessionError, OSError) as error:
                logger.warning("session %s cannot be marked as interrupted: %s", session_id, error)
                return False

    latest = await store.last_events(await store.abandoned(), (TURN_BEGUN, TURN_DONE))
    unended = [session_id for session_id, event in latest.items() if event["event"] == TURN_BEGUN]
    marked = await asyncio.gather(*map(mark, unended))
    return [session_id for session_id, is_marked in zip(unended, marked, strict=True) if is_marked]


async def _mark(store: SessionStore, session_id: str, holder: Holder, announcements: Announcements) -> bool:
    record = await store.read(session_id)
    counted = counted_until(record, await store.last_seq(session_id))
    events = await store.read_events(session_id, after_seq=counted)
    if not is_in_turn(events):
        return False
    hold = await store.acquire(session_id, holder)
    try:
        await store.update(hold, last_error=interrupted_document(session_id))
        messages = await store.read_messages(session_id)
        broken = find_broken_turn(messages, events, record.turn_count)
        if broken is not None and record.root_id == session_id:
            done = (TURN_DONE, broken.done(messages))
            await announcements.tell(hold, record, done, correlation_id=broken.correlation_id)
    finally:
        await store.release(hold)
    return True
