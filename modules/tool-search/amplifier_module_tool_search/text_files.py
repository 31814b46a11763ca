"""Reading files that may be anything: no waiting for a pipe, no binary data, no guessing at encodings."""

import os
import stat
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable
from pathlib import Path

from amplifier_kit.tools.descriptors import real_path

BINARY_PROBE_BYTES = 8192


class NotSearchedError(OSError):
    """The file is not one that can be searched, or not one that may be."""


def read_regular(
    path: Path, *, limit: int = -1, max_size: int = 0, may_read: Callable[[Path], bool] | None = None
) -> bytes:
    """Return up to `limit` bytes of a regular file of at most `max_size`, 0 for any size.

    `may_read` is asked about where the open file really lies.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor has no path
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise NotSearchedError("not a regular file")
        if max_size and found.st_size > max_size:
            raise NotSearchedError("too large")
        if may_read is not None and not may_read(real_path(descriptor) or Path(os.path.realpath(path))):
            raise NotSearchedError("outside the allowed paths")
        return file.read(limit)


def is_binary(head: bytes) -> bool:
    """Say whether a file that begins like this is skipped when directories are searched."""
    return b"\0" in head[:BINARY_PROBE_BYTES] or head.startswith((BOM_UTF16_LE, BOM_UTF16_BE))


def decode(data: bytes) -> str:
    """Return the text of a file: without its mark, and with a sign in place of what is not text."""
    if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        return data.decode("utf-16", "replace")
    return data.removeprefix(BOM_UTF8).decode("utf-8", "replace")
