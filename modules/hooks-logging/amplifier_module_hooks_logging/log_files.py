"""The open log files: whole lines, rotation, and what happens when the disk refuses."""

import fcntl
import logging
import os
from collections import OrderedDict
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from amplifier_kit.files import LineFile

from .encoding import encode
from .records import new_record

logger = logging.getLogger(__name__)

_MAX_OPEN = 32


class LogFiles:
    """Appends lines to log files and keeps the most recently used of them open.

    A line that cannot be written is counted; the next one that can is preceded by a record that tells how many are
    missing. No error of the disk gets out of here.
    """

    def __init__(self, *, max_bytes: int = 0, backup_count: int = 3) -> None:
        self._max_bytes = max_bytes
        self._backup_count = backup_count
        self._open: OrderedDict[Path, _LogFile] = OrderedDict()
        self._dropped: dict[Path, int] = {}

    def append(self, path: Path, line: str) -> None:
        """Append one line, without its line end, in one write."""
        dropped = self._dropped.get(path, 0)
        if dropped:
            record = new_record("logging:dropped", "WARNING") | {"data": {"count": dropped}}
            line = f"{encode(record)}\n{line}"
        try:
            self._write(path, line)
        except (OSError, ValueError) as exc:  # ValueError: a name that no file system takes
            self._close(path)
            self._dropped[path] = dropped + 1
            if not dropped:
                logger.error("%s cannot be written, records are dropped until it can: %s", path, exc)  # noqa: TRY400
            return
        if dropped:
            del self._dropped[path]
            logger.info("%s can be written again; %d records are missing", path, dropped)

    def close(self) -> None:
        """Close every file; a later append opens its file again."""
        for path in list(self._open):
            self._close(path)

    def _write(self, path: Path, line: str) -> None:
        file = self._opened(path)
        if self._max_bytes and file.would_exceed(self._max_bytes, line):
            file.rotate(self._backup_count)
            self._close(path)
            file = self._opened(path)
        file.append(line)

    def _opened(self, path: Path) -> "_LogFile":
        """Return the open file; one that was removed is created again."""
        file = self._open.get(path)
        if file is not None and not file.is_removed():
            self._open.move_to_end(path)
            return file
        self._close(path)
        while len(self._open) >= _MAX_OPEN:
            self._close(next(iter(self._open)))
        file = self._open[path] = _LogFile(path)
        return file

    def _close(self, path: Path) -> None:
        file = self._open.pop(path, None)
        if file is not None:
            file.close()


class _LogFile:
    """One open log file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = LineFile(path)

    def append(self, line: str) -> None:
        self._lines.append(f"{line}\n")

    def is_removed(self) -> bool:
        return os.fstat(self._lines.fileno()).st_nlink == 0

    def would_exceed(self, max_bytes: int, line: str) -> bool:
        size = self._lines.size()
        return size > 0 and size + len(line.encode("utf-8", "replace")) + 1 > max_bytes

    def rotate(self, backup_count: int) -> None:
        """Move the file to `.1`, `.1` to `.2` and so on; the last one goes.

        If several processes want to, the first one does it: the lock belongs to the file that is moved, and
        a later caller finds another file in its place.
        """
        fcntl.flock(self._lines.fileno(), fcntl.LOCK_EX)
        if not self._is_in_place():
            return
        names = [self._path, *(Path(f"{self._path}.{number}") for number in range(1, backup_count + 1))]
        for newer, older in reversed(list(pairwise(names))):
            if newer.exists():
                newer.replace(older)

    def close(self) -> None:
        with suppress(OSError):  # what a remote disk says now is too late for the record it is about
            self._lines.close()

    def _is_in_place(self) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._lines.fileno()))
        except FileNotFoundError:
            return False
