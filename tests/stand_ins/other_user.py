"""Being another user for a while: what a test of permissions needs where the suite runs as root."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

NOBODY = 65534


@contextmanager
def place_for_everybody() -> Iterator[Path]:
    """Make a directory that every user can enter; those of pytest are for their owner alone."""
    directory = Path(tempfile.mkdtemp(prefix="amplifier-test-", dir=_reachable_directory())).resolve()
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        if directory.exists():  # a test may have removed it
            directory.chmod(0o755)
            shutil.rmtree(directory)


@contextmanager
def place_of_another_user() -> Iterator[Path]:
    """Make a directory that belongs to someone who is not root, where the suite runs as root."""
    with place_for_everybody() as directory:
        if os.geteuid() == 0:
            os.chown(directory, NOBODY, NOBODY)
        yield directory


@contextmanager
def as_another_user() -> Iterator[None]:
    """Go on as someone who is not root; whatever happens meanwhile, the process is root again afterwards."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@cache
def _reachable_directory() -> str:
    places = (tempfile.gettempdir(), "/var/tmp", "/dev/shm")
    with as_another_user():
        reachable = [place for place in places if os.access(place, os.R_OK | os.X_OK, effective_ids=True)]
    if not reachable:
        pytest.skip(f"another user can reach none of {', '.join(places)}")
    return reachable[0]
