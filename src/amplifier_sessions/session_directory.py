"""Where sessions lie in the state of a home, and what can be read of one without understanding it."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

SESSIONS = "sessions"
INDEX = "index.db"

METADATA = "metadata.json"
TRANSCRIPT = "transcript.jsonl"
SWITCH = "switch"
"""Files that are about to take the place of others of the same name; whoever reads looks there first."""

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


def first_prompt(directory: Path) -> str:
    """Return what a person said first; the transcript is read no further."""
    try:
        with (directory / TRANSCRIPT).open("rb") as file:
            for line in file:
                try:
                    message = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(message, dict) and message.get("role") == "user":
                    content = message.get("content")
                    if isinstance(content, str):
                        return content
    except OSError:
        pass
    return ""


def _read(path: str) -> bytes | None:
    """Return what a file says; lists read hundreds of them, each a few system calls."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123 - there is no path any more
        return file.read()
