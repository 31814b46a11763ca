"""What an installer may write, and how it is ended when it writes more: a small wheel can unpack to a full disk."""

import asyncio
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from amplifier_system.processes import ProcessTree

_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class InstallLimits:
    """Bytes, downloads included: twice what the largest frameworks need. Files: many times what they have."""

    bytes: int = 16 << 30
    files: int = 1_000_000

    def excess(self, size: int, files: int) -> str:
        """Return what to say of an installer that wrote so much; empty if it may."""
        if size <= self.bytes and files <= self.files:
            return ""
        most = f"{self.bytes >> 20} MiB" if size > self.bytes else f"{self.files:,} files"
        return f"error: it was ended because it wrote more than {most}"

    def excess_of(self, directory: Path) -> str:
        """Return the same for what was installed into a directory."""
        size = files = 0
        for file in directory.rglob("*") if directory.is_dir() else ():
            size, files = size + file.lstat().st_size, files + 1
            if found := self.excess(size, files):
                return found
        return ""


DEFAULT_LIMITS = InstallLimits()


class InstallWatch:
    """Ends an installer once it has written more than it may; `excess` says so then.

    Bytes are those that its processes have written, where the system counts that. Files are those that the file systems
    of its target, its cache and its temporary files have more of than before, whoever made them.
    """

    def __init__(self, tree: ProcessTree, target: Path, limits: InstallLimits) -> None:
        self._tree, self._limits = tree, limits
        self.excess = ""
        cache = os.environ.get("UV_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home()
        places = [_existing(Path(place)) for place in (target, cache, tempfile.gettempdir())]
        self._places = tuple({place.stat().st_dev: place for place in places}.values())
        self._before = [_files_of(place) for place in self._places]

    async def end_beyond(self) -> None:
        """Look again and again, until it is too much."""
        while not self.excess:
            await asyncio.sleep(_LOOK_S)
            self.excess = self._limits.excess(_written_by(self._tree.pid), self._new_files())
        await self._tree.kill()

    def _new_files(self) -> int:
        return max(_files_of(place) - before for place, before in zip(self._places, self._before, strict=True))


def _existing(path: Path) -> Path:
    return next(place for place in (path, *path.absolute().parents) if place.exists())


def _files_of(place: Path) -> int:
    """Return how many files there are on the file system of a place; 0 where that is not counted."""
    try:
        counted = os.statvfs(place)
    except OSError:  # it is being removed
        return 0
    return counted.f_files - counted.f_ffree


def _written_by(pid: int) -> int:
    """Return how much a process, and what it waited for, has written; 0 where it is over or nothing counts it."""
    try:
        found = re.search(rb"^wchar: (\d+)", Path(f"/proc/{pid}/io").read_bytes(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) if found else 0
