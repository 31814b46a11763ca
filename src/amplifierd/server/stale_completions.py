"""Sessions of completions that a daemon left behind when it was killed: no client waits for the answer any more."""

from __future__ import annotations

from amplifierd.sessions.home_sessions import Sessions
from amplifierd.store.protocol import SessionQuery
from amplifierd.store.record import SessionRecord

TAG = "completion"
"""By which they are found in the index."""

MARK = {"for": "completion"}
"""What their metadata say. Another session has both only if its creator wants it to end like these."""

_MOST_AT_A_TIME = 500


def is_completion(record: SessionRecord) -> bool:
    """True if a session was made for one completion."""
    return TAG in record.tags and MARK.items() <= record.metadata.items()


async def remove_stale_completions(sessions: Sessions) -> None:
    """Remove them for good, as the end of their requests would have done.

    Those in a shared store may be at work in another daemon; the one that takes such a session over removes it.
    """
    while sessions.runtime.settings.store.is_files:
        found = await sessions.runtime.store.list(SessionQuery(tag=TAG, limit=_MOST_AT_A_TIME))
        left = [record.session_id for record in found.sessions if is_completion(record)]
        for session_id in left:
            await sessions.delete(session_id, force=True, forever=True)
        if len(left) < _MOST_AT_A_TIME:
            return
