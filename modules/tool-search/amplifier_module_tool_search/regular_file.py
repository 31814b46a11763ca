"""Opening files that may be anything: no waiting for a pipe, no device, no guessing at encodings."""

import os
import stat
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from amplifier_kit.tools.descriptors import real_name

_BINARY_PROBE_BYTES = 8192


class NotSearchedError(OSError):
    """The file is not one that can be searched, or not one that may be."""


def open_regular(path: str, *, max_size: int = 0, may_read: Callable[[str], bool] | None = None) -> int:
    """Return a descriptor of a regular file of at most `max_size` bytes, 0 for any size.

    `may_read` is asked about where the open file really lies.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        problem = _find_problem(descriptor, max_size)
        if problem is None and may_read is not None:
            place = real_name(descriptor) or os.path.realpath(path)
            problem = None if may_read(place) else "not to be read"
    except BaseException:
        os.close(descriptor)
        raise
    if problem is not None:
        os.close(descriptor)
        raise NotSearchedError(problem)
    return descriptor


def read_start(path: Path, limit: int) -> bytes:
    """Return up to `limit` bytes of a regular file."""
    descriptor = open_regular(str(path))
    try:
        return os.pread(descriptor, limit, 0)
    finally:
        os.close(descriptor)


def is_binary(descriptor: int) -> bool:
    """Say whether an open file is skipped when directories are searched."""
    head = os.pread(descriptor, _BINARY_PROBE_BYTES, 0)
    return b"\0" in head or head.startswith((BOM_UTF16_LE, BOM_UTF16_BE))


def open_text(descriptor: int) -> TextIO:
    """Return an open file as text: without its mark, and with a sign in place of what is not text.

    Lines end with a line feed and nothing else. The descriptor is closed with what is returned.
    """
    is_wide = os.pread(descriptor, 2, 0) in (BOM_UTF16_LE, BOM_UTF16_BE)
    return os.fdopen(descriptor, encoding="utf-16" if is_wide else "utf-8-sig", errors="replace", newline="\n")


def _find_problem(descriptor: int, max_size: int) -> str | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    return "too large" if max_size and found.st_size > max_size else None
