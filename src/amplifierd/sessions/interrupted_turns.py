"""Turns that ended with the process that ran them: marked in the record, without loading the session's modules."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from amplifierd.exceptions import SessionError
from amplifierd.problems import interrupted_document
from amplifierd.session_store.hold import Holder
from amplifierd.session_store.protocol import SessionStore

from .uncounted import counted_until, is_in_turn

logger = logging.getLogger(__name__)


async def mark_interrupted(store: SessionStore, holder: Holder) -> Sequence[str]:
    """Say in the record of every abandoned session whose turn had not ended that it was interrupted; returns their ids.

    What the turn left behind is repaired when the session is opened next.
    """
    marked = []
    for session_id in await store.abandoned():
        try:
            if await _mark(store, session_id, holder):
                marked.append(session_id)
        except (SessionError, OSError) as error:
            logger.warning("session %s cannot be marked as interrupted: %s", session_id, error)
    return marked


async def _mark(store: SessionStore, session_id: str, holder: Holder) -> bool:
    record = await store.read(session_id)
    counted = counted_until(record, await store.last_seq(session_id))
    if not is_in_turn(await store.read_events(session_id, after_seq=counted)):
        return False
    hold = await store.acquire(session_id, holder)
    try:
        await store.update(hold, last_error=interrupted_document(session_id))
    finally:
        await store.release(hold)
    return True
