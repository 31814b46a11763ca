"""The working directory as a descriptor: every way into it goes name by name and never through a symlink."""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_PLACE = getattr(os, "O_PATH", 0) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RootDirectory:
    """One directory and what is below it; paths are relative and have no `..`. A context manager."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> RootDirectory:
        self._descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)

    @contextmanager
    def opened(self, path: str) -> Iterator[int]:
        """Yield a descriptor of a directory. Raises `OSError`, also where a symlink or a file is in the way."""
        descriptor = os.dup(self._descriptor)
        try:
            for name in path.split("/") if path else ():
                below = os.open(name, _DIRECTORY, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = below
            yield descriptor
        finally:
            os.close(descriptor)

    @contextmanager
    def parent(self, path: str) -> Iterator[tuple[int, str]]:
        """Yield a descriptor of the directory that a path lies in, and the path's own name."""
        folder, _, name = path.rpartition("/")
        with self.opened(folder) as descriptor:
            yield descriptor, name

    def status(self, path: str) -> os.stat_result | None:
        """Return what is at a path, None when nothing is, or when the way to it leads through something else."""
        try:
            with self.parent(path) as (folder, name):
                return os.stat(name, dir_fd=folder, follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if is_symlink_in_the_way(error):
                return None
            raise


def open_file(name: str, *, folder: int) -> int:
    """Open a file for reading without following a symlink, and without waiting for a pipe that took its place."""
    return os.open(name, _FILE, dir_fd=folder)


def is_symlink_in_the_way(error: OSError) -> bool:
    return error.errno in (errno.ELOOP, errno.EMLINK, errno.ENOTDIR)


def change_mode_of_directory(name: str, mode: int, *, folder: int) -> None:
    """Set the permissions of a directory, also of one that may not be read, and of nothing else."""
    try:
        descriptor = os.open(name, _DIRECTORY, dir_fd=folder)
    except PermissionError:
        _change_mode_by_place(name, mode, folder)
        return
    try:
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _change_mode_by_place(name: str, mode: int, folder: int) -> None:
    if sys.platform != "linux":
        os.chmod(name, mode, dir_fd=folder, follow_symlinks=False)
        return
    descriptor = os.open(name, _PLACE, dir_fd=folder)
    try:
        Path(f"/proc/self/fd/{descriptor}").chmod(mode)
    finally:
        os.close(descriptor)


def real_path(path: Path) -> Path:
    """Return a path without symlinks, as far as they lead anywhere: `Path.resolve` raises when they go in a circle."""
    return Path(os.path.realpath(path))


def permissions(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode)
