"""`undo.json`: the undo that has begun and is not finished, so that one which was killed can go on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from amplifierd.stored_json import StoredFormat

FORMAT = StoredFormat(version=1)


class UndoJournal:
    """Names the checkpoints of one undo: what it takes back, and what was there when it began."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, before: str, after: str, checkpoint: str) -> None:
        FORMAT.write(self._path, {"before": before, "after": after, "checkpoint": checkpoint})

    def end(self) -> None:
        self._path.unlink()

    def pending(self) -> tuple[str, str] | None:
        """Return between which checkpoints an undo was interrupted."""
        match self._read():
            case {"before": str(before), "after": str(after)}:
                return before, after
        return None

    def find(self, before: str, after: str) -> str | None:
        """Return the checkpoint that an interrupted undo of these changes began with."""
        match self._read():
            case {"before": known, "after": until, "checkpoint": str(id)} if (known, until) == (before, after):
                return id
        return None

    def _read(self) -> dict[str, Any]:
        try:
            return FORMAT.read(self._path) or {}
        except ValueError:  # it is written in one step: whatever damaged it, there is nothing to go on with
            return {}
