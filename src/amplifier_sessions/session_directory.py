"""Where sessions lie in the state of a home, and what can be read of one without understanding it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

SESSIONS = "sessions"
INDEX = "index.db"

METADATA = "metadata.json"
TRANSCRIPT = "transcript.jsonl"
SWITCH = "switch"
"""Files that are about to take the place of others of the same name; readers look there first."""

_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def is_session_id(text: str) -> bool:
    return _SESSION_ID.fullmatch(text) is not None


def pending_directory(index: Path) -> Path:
    """Return where processes name the sessions that they have still to index, each in a file of its own."""
    return index.with_suffix(".pending")


def read_file(directory: Path, name: str) -> bytes | None:
    """Return what a file that is replaced as a whole says, None when there is none."""
    found = _read(f"{directory}/{SWITCH}/{name}")
    return _read(f"{directory}/{name}") if found is None else found


def read_objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of lines; torn and garbled lines, and what is not a plain file, hold none."""
    try:
        if not path.is_file():
            return
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(entry, dict):
                    yield entry
    except OSError as error:
        warn_of(path, error)


def first_prompt(directory: Path) -> str:
    """Return what a person said first; the transcript is read no further."""
    said = (entry.get("content") for entry in read_objects(directory / TRANSCRIPT) if is_real_user_message(entry))
    return next((content for content in said if isinstance(content, str)), "")


def warn_of(path: Path, error: OSError) -> None:
    import logging  # loaded when something went wrong

    logging.getLogger(__name__).warning("%s is not read: %s", path, error)


def _read(path: str) -> bytes | None:
    """Return what a file says; lists read hundreds of them, each a few system calls."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - there is no path any more
        return file.read()


# What a message says, and whether a person wrote it.


def is_real_user_message(entry: Mapping[str, Any]) -> bool:
    """True if a person wrote it: it is neither a tool's result nor a `<system-reminder>`."""
    if entry.get("role") != "user" or "tool_call_id" in entry:
        return False
    return not any(text.strip().startswith("<system-reminder>") for text in texts_in(entry.get("content")))


def texts_in(content: Any) -> Iterator[str]:
    """Yield the texts of a message's content."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
                yield block["text"]


# What a line of a list says about a session.


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
