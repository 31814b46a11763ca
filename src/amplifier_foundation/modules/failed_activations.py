"""Activations that failed in this process: a session that asks again gets the same answer at once.

Preparing a bundle tries again, and so does a caller of `forget_failures`.
"""

from pathlib import Path

Key = tuple[Path, Path | None, str, str]
"""The cache, where relative sources count from, module and source."""

_failures: dict[Key, str] = {}


def note_failure(key: Key, error: Exception) -> None:
    _failures[key] = str(error)


def note_success(key: Key) -> None:
    _failures.pop(key, None)


def find_failure(key: Key) -> str | None:
    """Return why an activation failed, None if it did not, or was not tried."""
    return _failures.get(key)


def forget_failures() -> None:
    """Let everything be tried again that has failed so far."""
    _failures.clear()
