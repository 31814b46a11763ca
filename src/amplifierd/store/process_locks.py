"""Whether a hold counts: its process keeps a file locked for as long as it lives, and a daemon has the home to itself.

The kernel frees the lock when the process ends, however it ends, and other processes see it from every namespace and
under every host name. In a copy of a home nothing is locked, so that what its sessions say of their holders counts for
nothing there.

The daemon of a home has `daemon.lock` locked, and writes its incarnation into it: a number that grows with each daemon,
and a random part. What it and its workers hold names that. Whoever has the lock now knows that no other incarnation has
a daemon, whatever is left of its workers: it takes their sessions at once, and the fence keeps late writers out.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import PRIVATE
from amplifierd.exceptions import SessionError, SessionHeldError, StoreFullError
from amplifierd.os_errors import FULL, MAKE_ROOM, USE_LOCKS

from .hold import FENCE_BYTES, Hold, Holder, lost

DAEMON_LOCK = "daemon.lock"

_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB
_LOOK = fcntl.LOCK_SH | fcntl.LOCK_NB
_LOOKS = 3
_LONGEST = 128
_PAUSE_S = 0.005
"""Another process may have the file of a dead one locked for a moment, to remove it."""

_given_up: set[Hold] = set()


class ProcessLocks:
    """The locks of the processes that hold sessions of one home, a file each in one directory.

    `incarnation` is that of the daemon that this process is, or works for.
    """

    def __init__(self, run: Path) -> None:
        self._directory, self._daemon_lock = run / "holders", run / DAEMON_LOCK
        self.incarnation: str | None = None

    def marked(self, holder: Holder) -> Holder:
        """Return the holder with the lock by which others see that it lives, if it is this process.

        Raises:
            SessionError: there is none to be had: no room for its file, or no locks on this file system.
        """
        if holder.lock is not None or not holder.is_this_process():
            return holder
        try:
            return replace(holder, lock=_own_lock(self._directory))
        except OSError as error:
            text = f"{self._directory} cannot be locked, so others could take the sessions of this process: {error}"
            if error.errno in FULL:
                raise StoreFullError(text, hint=MAKE_ROOM) from error
            is_refused = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS)
            writable = f"make {self._directory} writable; reading works all the same"
            raise SessionError(text, hint=writable if is_refused else USE_LOCKS) from error

    def counts(self, hold: Hold) -> bool:
        """True unless the session of a hold is free: its process or its daemon is gone, or this one gave it up."""
        if hold in _given_up:
            return False
        is_of_another = None not in (hold.member_id, self.incarnation) and hold.member_id != self.incarnation
        if is_of_another and read_incarnation(self._daemon_lock) == self.incarnation:
            return False
        return self.is_alive(hold.holder)

    def give_up(self, hold: Hold) -> None:
        """Take note that no one in this process uses a hold any more, though it could not be written down."""
        _given_up.add(hold)

    def owners(self) -> list[int]:
        """Return the processes that have a lock here, as far as they can be seen."""
        found: list[int] = []
        for path in self._directory.iterdir() if self._directory.is_dir() else ():
            with _opened(path) as descriptor:
                if descriptor is not None and (pid := lock_owner(descriptor)) is not None:
                    found.append(pid)
        return found

    def is_alive(self, holder: Holder) -> bool:
        """True while the process of a holder may be there."""
        if holder.lock is None:
            return holder.is_alive()
        for _ in range(_LOOKS):
            with _opened(self._directory / Path(holder.lock).name) as descriptor:
                if descriptor is None or _locked(descriptor, _LOOK):
                    return False
            time.sleep(_PAUSE_S)
        return True


def begin_incarnation(descriptor: int) -> str:
    """Write the next incarnation into the lock of a home, which the caller has locked; returns it."""
    number = _number_of(os.pread(descriptor, _LONGEST, 0).decode(errors="replace")) + 1
    incarnation = f"{number}-{uuid.uuid4().hex}"
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{incarnation}\n".encode(), 0)
    return incarnation


def read_incarnation(lock: Path) -> str | None:
    """Return the incarnation that had a home last, None if there was none."""
    try:
        return lock.read_text(errors="replace").strip() or None
    except OSError:
        return None


def _number_of(incarnation: str) -> int:
    number = incarnation.partition("-")[0]
    return int(number) if number.isascii() and number.isdigit() else 0


@cache
def _own_lock(directory: Path) -> str:
    """Return the name of the file that this process has locked there since it first needed to, and until it ends.

    Raises:
        OSError: it cannot be locked.
    """
    make_directory(directory)
    _remove_left(directory)
    while True:
        path = directory / uuid.uuid4().hex
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(descriptor, _TRY)
            is_ours = _is_in_place(descriptor, path)
        except OSError:
            os.close(descriptor)
            path.unlink(missing_ok=True)
            raise
        if is_ours:
            os.register_at_fork(after_in_child=partial(os.close, descriptor))
            return path.name
        os.close(descriptor)  # another process has removed it before it was locked


os.register_at_fork(after_in_child=_own_lock.cache_clear)  # a child holds sessions in its own name


def _remove_left(directory: Path) -> None:
    """Remove the files of processes that are gone."""
    for path in directory.iterdir():
        with _opened(path) as descriptor:
            if descriptor is not None and _locked(descriptor, _TRY):
                path.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path) -> Iterator[int | None]:
    """Open a file for a moment; None if there is none."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _locked(descriptor: int, how: int) -> bool:
    """Lock a file until it is closed; False if another process has it locked."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    return True


def _is_in_place(descriptor: int, path: Path) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


# The short lock before every write into a session. Its line says under which hold writes are let through.


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
        """True if the file is still the one under its name, and not that of a session deleted meanwhile."""
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
