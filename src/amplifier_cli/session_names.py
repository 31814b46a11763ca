"""What people call a session, and what it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from amplifier_system.visible import visible_line

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


_NAMED = 3


def missing_modules(record: SessionRecord) -> list[dict[str, Any]]:
    """Return the modules of its plan that a session goes without: their `module_id`, and the `error` of each."""
    failed = (each for each in record.load_warnings if each.get("module_id"))
    return [{"module_id": each["module_id"], "error": each.get("error")} for each in failed]


def without(missing: Sequence[Mapping[str, Any]]) -> str:
    """Return in a few words which modules are missing, empty when none is."""
    names = [visible_line(str(each["module_id"])) for each in missing]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"without {', '.join(names[:_NAMED])}{more}" if names else ""


def standing(record: SessionRecord) -> str:
    """Return what stands before the line that is typed: the permission level, and what the session goes without."""
    return " ".join(filter(None, (record.permission_level, without(missing_modules(record)))))
