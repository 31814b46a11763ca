"""Directories for the time of an installation; what a killed process left of them is removed by the next one."""

import asyncio
import contextlib
import fcntl
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from amplifier_foundation.sources.store import remove
from amplifier_system.tasks import run_to_end

_PREFIX = "amplifier-install-"


@asynccontextmanager
async def scratch_directory() -> AsyncIterator[Path]:
    """Give an empty directory, which is gone afterwards."""
    await asyncio.to_thread(remove_scratch_leftovers)
    directory, descriptor = _held_directory()
    try:
        yield directory
    finally:
        await run_to_end(asyncio.to_thread(remove, directory))
        os.close(descriptor)


def _held_directory() -> tuple[Path, int]:
    """Make a directory and hold it; another process may take it for a leftover in between, then it is made again."""
    while True:
        directory = Path(tempfile.mkdtemp(prefix=_PREFIX))
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            if directory.is_dir():
                return directory, descriptor
            os.close(descriptor)


def remove_scratch_leftovers() -> None:
    """Remove the directories that no process holds; the system takes a lock back when its holder dies."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with contextlib.suppress(OSError):  # another user's, or gone
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(descriptor).st_uid != os.getuid():
                    continue
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove(directory)
            finally:
                os.close(descriptor)
