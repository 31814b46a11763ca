"""Files that survive a crash: lines that are written whole, and files that are replaced whole."""

import os
import re
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

PRIVATE = 0o600
DEFAULT = 0o666  # less what the umask takes away

_LOOKS = 10  # at a file that seems torn, before it counts as such
_LOOK_INTERVAL_S = 0.002
_LINES = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{32}\.tmp", re.DOTALL)
_LONGEST_PART = 50  # of a file's own name in that of its temporary neighbour, in characters of up to four bytes


class LineFile:
    """A file to which whole lines are appended, shared safely with other processes.

    Each line is one write to a descriptor in append mode. A line that a crash tore is ended before the first append,
    so that nothing is ever glued to it.
    """

    def __init__(self, path: Path, *, fsync: bool = False) -> None:
        self.path = path
        self._fsync = fsync
        try:
            self._descriptor = os.open(path, _LINES, PRIVATE)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, _LINES, PRIVATE)
        self._must_end_torn_line = self._is_torn()

    def append(self, text: str) -> int:
        """Append `text` (one or more lines, each with its line end) and return the number of bytes written.

        Raises `OSError`. What a failed write left of the text is removed or, if something was written after it, ended
        as a torn line by the next append.
        """
        data = text.encode("utf-8", "replace")
        was_torn = self._must_end_torn_line
        if was_torn:
            data = b"\n" + data
        self._must_end_torn_line = True
        written = 0
        try:
            written = os.write(self._descriptor, data)
            if written == len(data) and self._fsync:
                os.fsync(self._descriptor)
        except OSError:
            self._take_back(data[:written], was_torn)
            raise
        if written != len(data):
            self._take_back(data[:written], was_torn)
            raise OSError(f"only {written} of {len(data)} bytes could be written to {self.path}")
        self._must_end_torn_line = False
        return written

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        """Close the file; a second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _take_back(self, fragment: bytes, was_torn: bool) -> None:
        """Remove what a failed write left at the end of the file, unless something was written after it."""
        start = self.size() - len(fragment)
        if os.pread(self._descriptor, len(fragment), max(start, 0)) == fragment:
            os.ftruncate(self._descriptor, start)
            self._must_end_torn_line = was_torn

    def _is_torn(self) -> bool:
        """True if the file ends inside a line, other than one that is being written at this moment."""
        for _ in range(_LOOKS):
            size = self.size()
            if size == 0 or os.pread(self._descriptor, 1, size - 1) == b"\n":
                return False
            time.sleep(_LOOK_INTERVAL_S)
        return True


def write_atomically(path: Path, data: bytes, *, private: bool = False, lasting: bool = True) -> None:
    """Replace `path` as a whole: a reader, or a crash, sees the old contents or the new, never a part.

    A file keeps its permissions unless it is `private` to its owner. Unless the new contents are `lasting`, a power
    failure in the next seconds may bring the old ones back. Missing directories are made.

    Raises:
        OSError: nothing was written; the file is as it was.
    """
    with _written_beside(path, data, mode=PRIVATE if private else _mode_of(path)) as temporary:
        temporary.replace(path)
    if lasting:
        sync_directory(path.parent)


def create_atomically(candidates: Iterable[Path], data: bytes) -> Path:
    """Create the first of `candidates` that is not there yet, as a whole and private; nothing is ever replaced.

    The candidates lie in one directory. Raises `FileExistsError` when all of them exist.
    """
    waiting = iter(candidates)
    path = next(waiting)
    with _written_beside(path, data, mode=PRIVATE) as temporary:
        while True:
            try:
                _move_to_new(temporary, path)
            except FileExistsError:
                if (other := next(waiting, None)) is None:
                    raise
                path = other
            else:
                return path


class Replacement:
    """A file in the making, in an open directory and beside the file whose place it takes; `file` is written to.

    At the end of a `with` block it is gone, unless it took its place. Its name begins with `prefix`.
    """

    def __init__(self, directory: int, *, mode: int = PRIVATE, prefix: str = ".") -> None:
        self._directory, self._temporary = directory, f"{prefix}{uuid.uuid4().hex}.tmp"
        self.file = os.fdopen(os.open(self._temporary, _NEW_FILE | os.O_NOFOLLOW, mode, dir_fd=directory), "wb")

    def sync(self) -> os.stat_result:
        """Wait until everything written is on the disk, and return what the file is then."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return os.fstat(self.file.fileno())

    def take_place(self, name: str) -> None:
        """Become the file of a name in the same directory, in one step."""
        os.replace(self._temporary, name, src_dir_fd=self._directory, dst_dir_fd=self._directory)
        self._temporary = ""

    def discard(self) -> None:
        """Close the file, and remove it unless it took its place."""
        with suppress(OSError):
            self.file.close()
        if self._temporary:
            with suppress(OSError):
                os.unlink(self._temporary, dir_fd=self._directory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.discard()


def remove_unfinished(directory: Path, *, older_than_s: float = 60.0) -> None:
    """Remove the files that processes which were killed left behind while they wrote; writing takes no such time."""
    oldest = time.time() - older_than_s
    for path in directory.glob(".*.tmp"):
        with suppress(OSError):  # another one was faster
            if _UNFINISHED.fullmatch(path.name) and path.stat().st_mtime < oldest:
                path.unlink()


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    with suppress(OSError):  # some file systems cannot; the rename itself is done
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _written_beside(path: Path, data: bytes, *, mode: int | None) -> Iterator[Path]:
    """Yield a file in the directory of `path` that holds `data`; it is gone afterwards unless it was moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name[:_LONGEST_PART]}.{uuid.uuid4().hex}.tmp")
    try:
        descriptor = os.open(temporary, _NEW_FILE, DEFAULT if mode is None else PRIVATE)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                temporary.chmod(mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _mode_of(path: Path) -> int | None:
    """Return the permissions of a file, None when it does not exist and the system decides."""
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        return None


def _move_to_new(temporary: Path, path: Path) -> None:
    """Give a file its name unless that is taken, which a rename would not notice."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links: the name is taken first, then filled
        path.touch(PRIVATE, exist_ok=False)
        temporary.replace(path)
