"""Files in folders that a cloud service keeps in sync, and files that must not be lost half-written."""

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import stat
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


async def read_with_retry(path: Path, max_retries: int = 3, initial_delay: float = 0.1) -> str:
    """Return a file's text, trying again while its folder is being synced (input/output errors)."""
    return await _with_retry(lambda: path.read_text(encoding="utf-8"), path, max_retries, initial_delay)


async def write_with_retry(path: Path, content: str, max_retries: int = 3, initial_delay: float = 0.1) -> None:
    """Write a file's text, trying again while its folder is being synced; missing folders are made."""

    def write() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")

    await _with_retry(write, path, max_retries, initial_delay)


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
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        with contextlib.suppress(OSError):
            shutil.copy2(path, path.with_name(path.name + backup_suffix))
    write_atomically(path, encoded)


def write_atomically(path: Path, content: bytes, *, lasting: bool = True) -> None:
    """Put `content` in place of a file so that a reader, or a crash, sees the old bytes or the new, never a part.

    Unless it is `lasting`, a power failure in the next seconds may bring the old bytes back.

    Raises:
        OSError: nothing was written; the file is as it was.
    """
    temporary = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.tmp")
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else None
    try:
        with temporary.open("xb") as file:
            if mode is not None:
                temporary.chmod(mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if lasting:
        _sync_directory(path.parent)


def _sync_directory(directory: Path) -> None:
    with contextlib.suppress(OSError):  # some file systems cannot; the rename itself is done
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


async def _with_retry(act: Callable[[], T], path: Path, max_retries: int, initial_delay: float) -> T:
    for attempt in range(1, max_retries):
        try:
            return await asyncio.to_thread(act)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        if attempt == 1:
            logger.warning("%s: input/output error; is the folder synced by a cloud service? Trying again", path)
        await asyncio.sleep(initial_delay * 2 ** (attempt - 1))
    return await asyncio.to_thread(act)
