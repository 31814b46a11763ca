"""What people call a session, and what it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amplifier_sessions.session_directory import SessionSummary
    from amplifierd.store.record import SessionRecord

PREFIX = "session_"
_SHORT = 8
TAINTED = "it has read content from outside and private data; every host that your own files do not name is asked about"
"""What it means that a session is tainted."""


def short_id(session_id: str) -> str:
    """Return what people type of a session's id; that of an agent's session is its parent's and its own beginning."""
    if not session_id.startswith(PREFIX):
        return session_id
    root, _, below = session_id.removeprefix(PREFIX).partition("-")
    return f"{root[:_SHORT]}-{below[:_SHORT]}" if below else root[:_SHORT]


def agent_of(session: SessionSummary | SessionRecord) -> str:
    return session.profile_name or session.bundle or session.origin or "plan"
