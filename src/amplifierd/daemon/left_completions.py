"""Sessions of completions that a daemon left behind when it was killed: whoever asked for the answer is gone."""

from __future__ import annotations

from amplifierd.session_store.protocol import SessionQuery
from amplifierd.sessions.home_sessions import Sessions

TAG = "completion"
"""By which they are found in the index."""

MARK = {"for": "completion"}
"""What their metadata say. No other session has both, unless somebody wants it to end like these."""

_MOST_AT_A_TIME = 500


async def remove_left_completions(sessions: Sessions) -> None:
    """Remove them for good, as the end of their requests would have done."""
    while True:
        found = await sessions.runtime.store.list(SessionQuery(tag=TAG, limit=_MOST_AT_A_TIME))
        left = [record.session_id for record in found.sessions if MARK.items() <= record.metadata.items()]
        for session_id in left:
            await sessions.delete(session_id, force=True, forever=True)
        if len(left) < _MOST_AT_A_TIME:
            return
