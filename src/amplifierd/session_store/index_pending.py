"""Which sessions changed since the index was last written, on disk too: a killed process leaves word of them.

Each store keeps a file of its own, locked for as long as the process lives.
"""

from __future__ import annotations

import fcntl
import os
import threading
import uuid
from contextlib import suppress
from pathlib import Path

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import PRIVATE


class PendingSessions:
    """The sessions of one store that wait to be indexed. `add` is cheap, and may be called from any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / uuid.uuid4().hex
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._descriptor: int | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, session_id: str) -> bool:
        """Note a session; False when it was noted already."""
        if session_id in self._waiting:
            return False
        with self._lock:
            self._waiting.add(session_id)
            with suppress(OSError):  # a home that cannot be written has no index to fall behind either
                self._write([session_id])
        return True

    def take(self) -> set[str]:
        """Return what waits; it stays in the file until it is `done`."""
        with self._lock:
            taken, self._waiting = self._waiting, set()
            return taken

    def done(self) -> None:
        """Forget what was taken."""
        with self._lock, suppress(OSError):
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, 0)
                self._write(self._waiting)

    def put_back(self, taken: set[str]) -> None:
        with self._lock:
            self._waiting |= taken

    def take_abandoned(self) -> tuple[set[str], list[Path]]:
        """Return what processes that were killed had not indexed, and the files that say so."""
        found: set[str] = set()
        files: list[Path] = []
        with suppress(OSError):
            for path in list(self._directory.iterdir()):
                if path != self._path and (text := _read_abandoned(path)) is not None:
                    found.update(text.splitlines())
                    files.append(path)
        return found, files

    def close(self) -> None:
        with self._lock:
            if self._descriptor is not None:
                if not self._waiting:
                    with suppress(OSError):
                        self._path.unlink()
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self, session_ids: list[str] | set[str]) -> None:
        while self._descriptor is None:
            make_directory(self._directory)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self._path.exists():  # and was not taken for abandoned before it was locked
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        if session_ids:
            os.write(self._descriptor, "".join(f"{session_id}\n" for session_id in session_ids).encode())


def _read_abandoned(path: Path) -> str | None:
    """Return what a file says whose process is gone, else None."""
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file.read().decode(errors="replace")
    return None
