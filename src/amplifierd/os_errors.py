"""What the operating system refused, as an error that says how to fix it."""

from __future__ import annotations

import errno
from pathlib import Path

from amplifier_core.exceptions import AmplifierError

from .exceptions import StoreFullError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""No space, or no inode; and no quota."""

MAKE_ROOM = "make room on its disk, then try again"
USE_LOCKS = "put the home on a file system with locks (flock): a local disk, or NFS with its lock service"

_FREE_SPACE = "free some space, or use a home elsewhere: --home DIR"
_LONGEST_CHAIN = 8
_ALLOW = "make it readable and writable for you, or use another home: --home DIR"
_MOVE = "move what is there, or use another path"
_FIXES = {
    errno.ENOSPC: _FREE_SPACE,
    errno.EDQUOT: _FREE_SPACE,
    errno.EFBIG: "allow larger files (ulimit -f), or use a home elsewhere: --home DIR",
    errno.EACCES: _ALLOW,
    errno.EPERM: _ALLOW,
    errno.EROFS: "use a home on a file system that can be written: --home DIR",
    errno.EISDIR: _MOVE,
    errno.ENOTDIR: _MOVE,
    errno.ELOOP: "remove the link that points to itself, or use another path",
    errno.ENAMETOOLONG: "use a shorter name",
}


def is_full(error: BaseException) -> bool:
    """True for an error that says, or was caused by one that says, that there is no room left to write."""
    found: BaseException | None = error
    for _ in range(_LONGEST_CHAIN):
        if isinstance(found, StoreFullError) or (isinstance(found, OSError) and found.errno in FULL):
            return True
        if found is None:
            return False
        found = found.__cause__
    return False


def explained(error: OSError) -> AmplifierError | None:
    """Return an error that names the path and the fix; None when there is no general one."""
    if error.errno == errno.ENOENT and not error.filename and not _has_working_dir():
        return _known(error, "the current directory no longer exists", "change to one that does: cd")
    if error.errno == errno.ENOENT and not error.filename:  # tempfile says so when the disk is full
        return _known(error, str(error.strerror), "free some space, or set TMPDIR to a directory that can be written")
    fix = _FIXES.get(error.errno or 0)
    if fix is None:
        return None
    place = f"{error.filename}: " if error.filename else ""
    return _known(error, f"{place}{error.strerror}", fix)


def _known(error: OSError, message: str, hint: str) -> AmplifierError:
    known = (StoreFullError if error.errno in FULL else AmplifierError)(message, hint=hint)
    known.__cause__ = error
    return known


def _has_working_dir() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return False
    return True
