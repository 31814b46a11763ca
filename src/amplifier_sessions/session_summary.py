"""What a line of a list says about a session."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path

from .session_directory import METADATA, read_file

_FORMAT_VERSION = 1
"""Of `metadata.json`; another one is for the daemon's library to understand."""

_REQUIRED = frozenset({"session_id", "working_dir", "created_at"})
_NOT_TEXTS = {"message_count": int, "turn_count": int, "tags": list}


@dataclass(frozen=True)
class SessionSummary:
    """The part of a session's metadata that lists show, filter and sort by, under the same names; and where it lies."""

    session_id: str
    working_dir: str
    created_at: str
    status: str = "active"
    name: str | None = None
    profile_name: str | None = None
    bundle: str | None = None
    origin: str | None = None
    parent_session_id: str | None = None
    root_session_id: str | None = None
    owner: str | None = None
    ended_at: str | None = None
    last_activity_at: str | None = None
    message_count: int = 0
    turn_count: int = 0
    tags: list[str] = field(default_factory=list)
    directory: Path = Path()

    @property
    def root_id(self) -> str:
        return self.root_session_id or self.session_id


def read_summary(directory: Path) -> SessionSummary | None:
    """Return what is in the directory of a session; None when that is not plainly what this version writes."""
    try:
        stored = json.loads(read_file(directory, METADATA) or b"null")
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(stored, dict) or stored.get("format_version") != _FORMAT_VERSION:
        return None
    given = {name: stored[name] for name in _FIELDS if stored.get(name) is not None} | {"session_id": directory.name}
    is_right = all(type(value) is _NOT_TEXTS.get(name, str) for name, value in given.items())
    return SessionSummary(**given, directory=directory) if is_right and given.keys() >= _REQUIRED else None


_FIELDS = tuple(each.name for each in fields(SessionSummary) if each.name != "directory")
