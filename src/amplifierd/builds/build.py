"""A compiled profile: a directory that never changes, and the ways to use it."""

from __future__ import annotations

import fcntl
import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from amplifier_core import sys_path
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.identifiers import ProfileId

from .lock import DEPENDENCIES_DIR, ProfileLock

BuildStatus = Literal["fresh", "degraded"]


@dataclass(frozen=True)
class Build:
    """One build of a profile. `path` is its own directory, which stays as it is when the profile is compiled again.

    A build that nobody holds is removed some time after another took its place.
    """

    profile_id: ProfileId
    build_id: str
    path: Path
    status: BuildStatus
    warnings: tuple[str, ...] = ()
    lock: ProfileLock = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(cls, profile_id: ProfileId, path: Path, lock: ProfileLock) -> Build:
        status: BuildStatus = "degraded" if lock.degraded else "fresh"
        return cls(profile_id, lock.build_id, path, status, lock.warnings, lock=lock)

    @contextmanager
    def hold(self) -> Iterator[Path]:
        """Keep the build from being removed, as long as the block runs or until this process ends.

        Raises:
            ProfileCompilationError: it is gone already (`build-gone`); compile the profile again.
        """
        descriptor = _open_shared(self.path)
        if descriptor is None:
            raise ProfileCompilationError(
                f"Build {self.build_id} of profile {self.profile_id} is gone: {self.path}",
                code="build-gone",
                hint="compile the profile again",
            )
        try:
            yield self.path
        finally:
            os.close(descriptor)

    @contextmanager
    def import_path(self) -> Iterator[None]:
        """Hold the build, and have its dependencies at the end of `sys.path`; blocks of one build share the entry.

        Whoever runs modules of the build does so inside of this block.

        Raises:
            ProfileCompilationError: the build is gone (`build-gone`).
        """
        with self.hold():
            directory = self.path / DEPENDENCIES_DIR
            if not directory.is_dir():
                yield
                return
            entry = str(directory)
            is_new = entry not in sys.path
            is_held = sys_path.hold(entry)
            if is_held and is_new:
                sys.path.remove(entry)
                sys.path.append(entry)
                importlib.invalidate_caches()
            try:
                yield
            finally:
                if is_held:
                    sys_path.release(entry)


def move_if_unheld(path: Path, target: Path) -> bool:
    """Rename a build's directory unless somebody holds it; whoever wants to hold it meanwhile finds it gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.rename(target)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def _open_shared(path: Path) -> int | None:
    """Open a directory with a shared lock, which the operating system takes back when the process dies."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except FileNotFoundError:
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None
