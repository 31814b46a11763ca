"""The short lock before every write into a session. Its line says under which hold writes are let through."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from amplifier_system.files import PRIVATE
from amplifierd.exceptions import SessionHeldError

from .hold import FENCE_BYTES, Hold, lost

WAIT_LIMIT_S = 2.0

_POLL_S = 0.002
_EXCLUSIVE = fcntl.LOCK_EX | fcntl.LOCK_NB
_UNLOCK = fcntl.LOCK_UN
_flock, _pread = fcntl.flock, os.pread  # every append passes here
_LOCKS = Path("/proc/locks")


class Gate:
    """An open gate file. Two of one process exclude each other like those of two processes; one excludes no thread."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), PRIVATE)

    def try_lock(self) -> bool:
        try:
            _flock(self._descriptor, _EXCLUSIVE)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        _flock(self._descriptor, _UNLOCK)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock, which others have for moments only.

        Raises:
            SessionHeldError: its owner was stopped while it had it.
        """
        limit = time.monotonic() + WAIT_LIMIT_S
        while not self.try_lock():
            if time.monotonic() > limit:
                raise self._stuck()
            time.sleep(_POLL_S)
        try:
            yield
        finally:
            self.unlock()

    def read(self) -> bytes:
        return os.pread(self._descriptor, FENCE_BYTES, 0)

    def write(self, line: bytes) -> None:
        os.pwrite(self._descriptor, line, 0)

    def check(self, hold: Hold) -> None:
        """Raise `HoldLostError` unless `hold` is the valid one; asked while the gate is locked."""
        if _pread(self._descriptor, FENCE_BYTES, 0) != hold.fence:
            raise lost(hold)

    def is_in_place(self) -> bool:
        """Say whether the file is still the one under its name, and not that of a session deleted meanwhile."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _stuck(self) -> SessionHeldError:
        pid = lock_owner(self._descriptor)
        who = f"process {pid}" if pid else "a process"
        end = f"kill -CONT {pid} lets it continue, kill -9 {pid} ends it" if pid else "find it with: lsof"
        return SessionHeldError(
            f"session {self._path.parent.name!r}: {who} has had {self._path} locked for more than {WAIT_LIMIT_S:g} s,"
            " it is probably stopped",
            holder=pid,
            hint=f"{end}{'' if pid else f' {self._path}'}",
        )


def lock_owner(descriptor: int) -> int | None:
    """Return the process that has a file locked, where the system tells and it can be seen from here."""
    status = os.fstat(descriptor)
    wanted = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    owners = (line.split() for line in lines if " FLOCK " in line and "->" not in line)
    return next((int(fields[4]) for fields in owners if fields[5] == wanted and int(fields[4]) > 0), None)
