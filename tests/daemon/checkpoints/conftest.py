"""A working directory, its checkpoints, and a picture of a tree that misses nothing."""

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifierd.checkpoints import Checkpoints

Picture = dict[bytes, tuple[str, int, bytes]]


def picture(folder: Path, *, without: tuple[str, ...] = ()) -> Picture:
    """Return every path below a folder with its kind, permissions and contents."""
    found: Picture = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in without]
        for name in [*folders, *files]:
            path = Path(place) / name
            status = path.lstat()
            mode = stat.S_IMODE(status.st_mode)
            key = os.fsencode(path.relative_to(folder))
            if stat.S_ISLNK(status.st_mode):
                found[key] = ("symlink", 0, os.fsencode(path.readlink()))
            elif stat.S_ISDIR(status.st_mode):
                found[key] = ("directory", mode, b"")
            elif stat.S_ISREG(status.st_mode):
                found[key] = ("file", mode, path.read_bytes())
            else:
                found[key] = ("special", mode, b"")
    return found


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A small project."""
    folder = tmp_path / "work"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "notes.md").write_text("one\ntwo\nthree\n")
    (folder / "src" / "main.py").write_text("print('hello')\n")
    (folder / "src" / "deep" / "data.bin").write_bytes(bytes(range(256)) * 20)
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("notes.md")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def open_checkpoints(tmp_path: Path, work: Path) -> Callable[..., Checkpoints]:
    """Open the checkpoints of the working directory, as a process that starts anew does."""

    def open_them(**bounds: Any) -> Checkpoints:
        return Checkpoints(tmp_path / "state" / "checkpoints", work, **bounds)

    return open_them


@pytest.fixture
def checkpoints(open_checkpoints: Callable[..., Checkpoints]) -> Checkpoints:
    return open_checkpoints()
