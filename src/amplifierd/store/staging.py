"""Whole directories that appear in one step, prepared beside the sessions on the same file system.

That place is one level deeper than a session, so no one who lists sessions meets what lies in it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from amplifier_foundation.sources.store import make_directory
from amplifier_system.files import PRIVATE, sync_directory

from .json_lines import append_whole
from .session_files import GATE

NEW = ".new"

_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_BEGUN_WITHIN_S = 60.0


def create_directory(sessions: Path, name: str, contents: Mapping[str, bytes | Iterator[bytes]]) -> None:
    """Make the directory of a session with these files; it appears whole or not at all.

    `gate` is among the files, and stays locked until then.

    Raises:
        FileExistsError: there is one of that name.
    """
    target = sessions / name
    staging = make_directory(sessions / NEW) / uuid.uuid4().hex
    staging.mkdir(mode=0o700)
    try:
        gate = contents[GATE]
        assert isinstance(gate, bytes)
        with _locked_gate(staging / GATE, gate):
            for file, content in contents.items():
                if file != GATE:
                    write_new(staging / file, content)
            sync_directory(staging)
            rename_directory(staging, target)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    sync_directory(sessions)


def remove_leftovers(sessions: Path) -> None:
    """Remove what killed processes were creating."""
    with suppress(OSError):  # none there, or the home is read-only
        for path in list((sessions / NEW).iterdir()):
            if _is_abandoned(path):
                shutil.rmtree(path, ignore_errors=True)


@contextmanager
def scratch_directory(sessions: Path) -> Iterator[Path]:
    """Yield a directory beside the sessions, for files on their way; what a killed process leaves is removed later."""
    scratch = make_directory(sessions / NEW) / uuid.uuid4().hex
    scratch.mkdir(mode=0o700)
    try:
        with _locked_gate(scratch / GATE, b""):
            yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def write_new(path: Path | str, content: bytes | Iterator[bytes], *, lasting: bool = True) -> None:
    """Write a file that is not there yet, for the owner alone; a lasting one is on the disk then."""
    descriptor = os.open(path, _NEW_FILE, PRIVATE)
    try:
        for piece in (content,) if isinstance(content, bytes) else content:
            append_whole(descriptor, piece)
        if content and lasting:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _locked_gate(path: Path, content: bytes) -> Iterator[None]:
    descriptor = os.open(path, _NEW_FILE, PRIVATE)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, content)
        yield
    finally:
        os.close(descriptor)


def rename_directory(source: Path, target: Path) -> None:
    """Move a directory to a name that nothing has.

    Raises:
        FileExistsError: something has that name.
    """
    try:
        source.rename(target)
    except OSError as error:
        if target.exists():
            raise FileExistsError(f"{target} exists") from error
        raise


def _is_abandoned(staging: Path) -> bool:
    """True if the process that was creating this is gone: its lock on the gate would be there otherwise."""
    try:
        if staging.stat().st_mtime > time.time() - _BEGUN_WITHIN_S:  # its gate may not be locked yet
            return False
        descriptor = os.open(staging / GATE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return staging.exists()
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True
