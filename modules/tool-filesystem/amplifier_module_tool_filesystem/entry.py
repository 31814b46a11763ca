"""One entry of a directory, reached through no symbolic link, and what is done with it by descriptor."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import BinaryIO

from amplifier_kit.files import Replacement
from amplifier_kit.tools.descriptors import open_in, stat_in
from amplifier_kit.tools.input import ToolFailure

_PRIVATE = 0o600


class Stopped(Exception):
    """The caller was cancelled before anything had changed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A name in an open directory; `shown` is what the model is told, `real` where it lies."""

    directory: int
    name: str
    shown: Path
    real: Path

    def stat(self) -> os.stat_result | None:
        """Return what is there, None when nothing is."""
        return stat_in(self.directory, self.name)

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open a regular file for reading."""
        descriptor = open_in(self.directory, self.name, os.O_RDONLY)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor has no path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ToolFailure(f"Not a regular file: {self.shown}", "not_regular_file")
            yield file

    def names(self) -> list[tuple[str, bool]]:
        """Return the entries of a directory, each with whether it is a directory itself."""
        descriptor = open_in(self.directory, self.name, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as entries:
                return [(entry.name, _is_directory(entry)) for entry in entries]
        finally:
            os.close(descriptor)

    def replace(self, data: bytes, old: os.stat_result | None, stop: Event) -> os.stat_result:
        """Make `data` the contents, as a whole or not at all, and return what is there now.

        A file with other names, or in a directory that takes no new file, is written in place; what was in it is put
        back when that fails. Raises `Stopped` when the caller has gone before the contents changed.
        """
        if old is not None and old.st_nlink > 1:
            return self._write_in_place(data, stop)
        try:
            if old is not None:
                self._require_writable()
            return self._replace_whole(data, old, stop)
        except PermissionError:
            if old is None:
                raise
            return self._write_in_place(data, stop)

    def _require_writable(self) -> None:
        """Raise `PermissionError` for a file that may not be written, which replacing it would not notice."""
        try:
            os.close(open_in(self.directory, self.name, os.O_WRONLY))
        except OSError as exc:
            if exc.errno != errno.ETXTBSY:  # a program that is running can be replaced
                raise

    def _replace_whole(self, data: bytes, old: os.stat_result | None, stop: Event) -> os.stat_result:
        mode = 0o666 if old is None else _PRIVATE  # the system takes the umask off a new file's mode
        with Replacement(self.directory, mode=mode) as new:
            new.file.write(data)
            new.file.flush()
            if old is not None:
                _copy_owner_and_mode(new.file.fileno(), old)
            written = new.sync()
            _go_on_unless(stop)
            new.take_place(self.name)
        return written

    def _write_in_place(self, data: bytes, stop: Event) -> os.stat_result:
        descriptor = open_in(self.directory, self.name, os.O_RDWR)
        with open(descriptor, "r+b") as file:  # noqa: PTH123 - a descriptor has no path
            before = file.read()
            _go_on_unless(stop)
            try:
                _overwrite(file, data)
            except BaseException:
                with suppress(OSError):
                    _overwrite(file, before)
                raise
            return os.fstat(descriptor)


def _go_on_unless(stop: Event) -> None:
    if stop.is_set():
        raise Stopped


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads nowhere
        return False


def _copy_owner_and_mode(descriptor: int, old: os.stat_result) -> None:
    """Give a new file what the old one had; an owner that cannot be kept raises `PermissionError`."""
    new = os.fstat(descriptor)
    if (new.st_uid, new.st_gid) != (old.st_uid, old.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _overwrite(file: BinaryIO, data: bytes) -> None:
    file.seek(0)
    file.write(data)
    file.truncate()
    file.flush()
    os.fsync(file.fileno())
