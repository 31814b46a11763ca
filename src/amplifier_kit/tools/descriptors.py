"""Opening what a check was made of: directory by directory, by descriptor, and through no symbolic link."""

import errno
import fcntl
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

# A directory that may be passed through need not be readable.
_DIRECTORY = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY)
_NOT_FOLLOWED = {errno.ELOOP, errno.EMLINK, errno.ENOTDIR}
_PATH_BYTES = 1024


class LinkInTheWayError(OSError):
    """There is a symbolic link where a resolved path had none: it was put there since."""


@contextmanager
def opened_directory(path: Path, *, create: bool = False) -> Iterator[int]:
    """Open a directory by its resolved path, and make what is missing of it when `create` is set.

    Raises `LinkInTheWayError`, or the `OSError` of the component that cannot be entered. The descriptor serves as
    `dir_fd` only.
    """
    descriptor = os.open(path.anchor, _DIRECTORY)
    try:
        for name in path.parts[1:]:
            inner = _enter(descriptor, name, create=create)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def stat_in(directory: int, name: str) -> os.stat_result | None:
    """Return what an entry of an open directory is, None when there is none; raises `LinkInTheWayError`."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found.st_mode):
        raise LinkInTheWayError(errno.ELOOP, os.strerror(errno.ELOOP), name)
    return found


def open_in(directory: int, name: str, flags: int, mode: int = 0o666) -> int:
    """Open an entry of an open directory without waiting; raises `LinkInTheWayError`."""
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        return os.open(name, flags, mode, dir_fd=directory)
    except OSError as exc:
        if exc.errno in _NOT_FOLLOWED:
            stat_in(directory, name)
        raise


def real_path(descriptor: int) -> Path | None:
    """Return where an open file or directory lies now; None where the system does not tell."""
    found = real_name(descriptor)
    return None if found is None else Path(found)


def real_name(descriptor: int) -> str | None:
    """Return the same as text, for those who ask about thousands of files."""
    try:
        if sys.platform == "darwin":
            found = fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(_PATH_BYTES))
            return os.fsdecode(found.partition(b"\0")[0])
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a Path takes longer than the call
    except OSError:
        return None


def _enter(directory: int, name: str, *, create: bool) -> int:
    while True:
        try:
            return open_in(directory, name, _DIRECTORY)
        except FileNotFoundError:
            if not create:
                raise
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=directory)
