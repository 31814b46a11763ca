"""Who changed what and when: `audit.jsonl` in the directory of logs, one line per mutating call."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.store import make_directory, now
from amplifier_system.files import LineFile

MAX_BYTES = 10 * 1024 * 1024
KEPT = 5
"""Older files that stay beside the one being written."""

logger = logging.getLogger(__name__)

_encode = json.JSONEncoder(ensure_ascii=False).encode


class AuditLog:
    """The record of a daemon's mutating calls; private, and bounded like the log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LineFile | None = None

    def record(self, **facts: Any) -> None:
        """Append a line; a disk that takes none is told in the log, and stops no request."""
        line = f"{_encode({'time': now(), **facts})}\n"
        try:
            file = self._opened()
            file.append(line)
            if file.size() > MAX_BYTES:
                self._rotate()
        except OSError as error:
            logger.error("%s cannot be written (%s): %s", self._path, error, line.rstrip())  # noqa: TRY400 - expected

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> LineFile:
        if self._file is None:
            make_directory(self._path.parent)
            self._file = LineFile(self._path)
        return self._file

    def _rotate(self) -> None:
        self.close()
        for number in range(KEPT, 0, -1):
            older = self._path.with_name(f"{self._path.name}.{number - 1}") if number > 1 else self._path
            if older.exists():
                older.replace(self._path.with_name(f"{self._path.name}.{number}"))
