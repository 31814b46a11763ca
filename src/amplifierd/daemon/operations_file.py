"""Operations on disk, `state/operations.jsonl`: what was begun and what came of it, for the process that comes next."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import LineFile, write_atomically

logger = logging.getLogger(__name__)


class OperationsFile:
    """One line when an operation begins and one when it has ended, each with all that is known then."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LineFile | None = None
        self.lines = 0
        """How many were appended since the file was last replaced."""

    def read(self) -> list[dict[str, Any]]:
        """Return what is known of each operation, in the order in which they began; blocks."""
        found: dict[str, dict[str, Any]] = {}
        try:
            lines = self._path.read_bytes().splitlines()
        except OSError:  # there is none yet, or none that can be read: operations are a comfort, not a condition
            return []
        for line in lines:
            try:
                facts = json.loads(line)
                found[facts["id"]] = facts
            except (ValueError, KeyError, TypeError):
                logger.warning("%s has a line that cannot be read; it is left out", self._path)
        return [*found.values()]

    def replace(self, operations: Iterable[dict[str, Any]]) -> None:
        """Keep only these; blocks. A disk that takes nothing leaves the file as it was."""
        self.close()
        self.lines = 0
        text = "".join(_line(each) for each in operations)
        try:
            make_directory(self._path.parent)
            write_atomically(self._path, text.encode(), private=True)
        except OSError as error:
            logger.warning("%s cannot be written: %s", self._path, error)

    def append(self, operation: dict[str, Any]) -> None:
        """Write down how an operation stands; a disk that takes nothing stops none."""
        try:
            if self._file is None:
                make_directory(self._path.parent)
                self._file = LineFile(self._path)
            self._file.append(_line(operation))
            self.lines += 1
        except OSError as error:
            logger.warning("what became of %s is not kept for the next start: %s", operation["id"], error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(operation: dict[str, Any]) -> str:
    return json.dumps(operation, ensure_ascii=True, default=str) + "\n"
