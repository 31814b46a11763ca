"""Files in folders that a cloud service keeps in sync, and files that are backed up before they are replaced."""

import asyncio
import contextlib
import errno
import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from amplifier_system.files import write_atomically

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def read_with_retry(path: Path, max_retries: int = 3, initial_delay: float = 0.1) -> str:
    """Return a file's text, trying again while its folder is being synced (input/output errors)."""
    return await asyncio.to_thread(read_patiently, path, max_retries, initial_delay)


async def write_with_retry(path: Path, content: str, max_retries: int = 3, initial_delay: float = 0.1) -> None:
    """Write a file's text, trying again while its folder is being synced; missing folders are made."""

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    await asyncio.to_thread(_with_retry, write, path, max_retries, initial_delay)


def read_patiently(path: Path, max_retries: int = 3, initial_delay: float = 0.1) -> str:
    """Read as `read_with_retry` does, for callers that are in a worker thread already."""
    return _with_retry(lambda: path.read_text(encoding="utf-8"), path, max_retries, initial_delay)


def write_with_backup(
    path: Path, content: str | bytes, *, backup_suffix: str = ".backup", mode: str = "w", encoding: str = "utf-8"
) -> None:
    """Replace a file in one step, after copying what was there to `<name><backup_suffix>`.

    `mode="wb"` writes bytes. A backup that cannot be made does not stop the write.

    Raises:
        OSError: nothing was written; the file is as it was.
    """
    try:
        encoded = content.encode(encoding) if isinstance(content, str) else content
    except (LookupError, UnicodeError) as error:
        raise OSError(f"{path} cannot be written as {encoding}: {error}") from error
    if path.exists():
        with contextlib.suppress(OSError):
            shutil.copy2(path, path.with_name(path.name + backup_suffix))
    write_atomically(path, encoded)


def _with_retry(act: Callable[[], T], path: Path, max_retries: int, initial_delay: float) -> T:
    for attempt in range(1, max_retries):
        try:
            return act()
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        if attempt == 1:
            logger.warning("%s: input/output error; is the folder synced by a cloud service? Trying again", path)
        time.sleep(initial_delay * 2 ** (attempt - 1))
    return act()
