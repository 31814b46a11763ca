"""Where sessions lie in the state of a home, and what can be read of one without understanding it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .person_message import is_real_user_message

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
