"""Zip files of strangers: opened only if reading them takes no more memory than what is read of them.

`zipfile` makes an object of every entry before anyone can count them, and unpacks BZIP2 and LZMA without a limit: a
file of five hundred bytes takes a gigabyte as soon as its first byte is read.
"""

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ENTRY = b"PK\x01\x02"  # before every entry of the directory
_CHUNK = 1024 * 1024
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_NAMES = {zipfile.ZIP_BZIP2: "bzip2", zipfile.ZIP_LZMA: "lzma"}
_ENCRYPTED = 0x1


class UnsafeZipError(zipfile.BadZipFile):
    """A zip file that is not opened, with the reason."""


class TooManyEntriesError(UnsafeZipError):
    """It has more entries than allowed."""


@contextmanager
def open_untrusted(path: Path, *, most_entries: int) -> Iterator[zipfile.ZipFile]:
    """Open a zip file whose entries can be read in pieces of bounded size.

    Entries of stored archives inside of it count as its own: they look the same.

    Raises:
        UnsafeZipError: it has too many entries, or one that is encrypted or compressed in an unusual way.
        zipfile.BadZipFile: it is damaged, or not a zip file.
    """
    _check_entries(path, most_entries)
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if entry.flag_bits & _ENCRYPTED:
                raise UnsafeZipError(f"{entry.filename!r} is encrypted")
            if entry.compress_type not in _BOUNDED:
                method = _NAMES.get(entry.compress_type, f"method {entry.compress_type}")
                raise UnsafeZipError(f"{entry.filename!r} is compressed with {method}; only deflate is read")
        yield archive


def _check_entries(path: Path, most: int) -> None:
    count, before = 0, b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            count += (before + chunk).count(_ENTRY)
            if count > most:
                raise TooManyEntriesError(f"it has more than {most:,} entries")
            before = chunk[-len(_ENTRY) + 1 :]
