"""The last lines of the daemon's log, without what must not be shown."""

from __future__ import annotations

import os
from pathlib import Path

from amplifierd.sessions.without_secrets import masked

_MAX_BYTES = 1024 * 1024


def read_tail(path: Path, lines: int) -> list[str]:
    """Return the last lines of a file, at most a mebibyte of them; none when there is no such file."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _MAX_BYTES))
            found = file.read(_MAX_BYTES).decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []
    whole = found[1:] if size > _MAX_BYTES else found
    shown: list[str] = masked(whole[-lines:])
    return shown
