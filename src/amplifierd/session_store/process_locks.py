"""Whether a process that holds sessions lives: it keeps a file locked for as long as it does.

The kernel frees the lock when the process ends, however it ends, and other processes see it from every namespace and
under every host name. In a copy of a home nothing is locked, so that what its sessions say of their holders counts for
nothing there.
"""

from __future__ import annotations

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

from .hold import Holder

_TRY = fcntl.LOCK_EX | fcntl.LOCK_NB
_LOOK = fcntl.LOCK_SH | fcntl.LOCK_NB
_LOOKS = 3
_PAUSE_S = 0.005
"""Another process may have the file of a dead one locked for a moment, to remove it."""


class ProcessLocks:
    """The locks of the processes that hold sessions of one home, a file each in one directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def marked(self, holder: Holder) -> Holder:
        """Return the holder with the lock by which others see that it lives, if it is this process."""
        if holder.lock is not None or not holder.is_this_process():
            return holder
        try:
            return replace(holder, lock=_own_lock(self._directory))
        except OSError:  # this file system has no locks: others look for the process itself
            return holder

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
