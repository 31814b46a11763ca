"""A compiled profile: a directory that never changes, and the ways to use it."""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.metadata
import json
import logging
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import Distribution
from pathlib import Path
from typing import Any, Literal

from amplifier_core import sys_path
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.identifiers import ProfileId

from .lock import DEPENDENCIES_DIR, ProfileLock

logger = logging.getLogger(__name__)

BuildStatus = Literal["fresh", "degraded"]

_PACKAGES = ("site-packages", "dist-packages")

PLAN_FILE = "plan.json"
INSTRUCTION_FILE = "instruction.md"
ORIGINS_FILE = "origins.json"
WRITTEN = (PLAN_FILE, INSTRUCTION_FILE, ORIGINS_FILE)
"""The files that a compile writes beside the resources and the lock."""


@dataclass(frozen=True)
class Build:
    """One build of a profile. `path` is its own directory, which stays as it is when the profile is compiled again.

    The build that a compile replaces stays until the next one; hold it to keep it longer.
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

    def plan(self) -> dict[str, Any]:
        """Return the portable plan of this build, without what a request changes about it.

        Raises:
            ProfileCompilationError: it cannot be read (`build-damaged`, `build-gone`).
        """
        return dict(json.loads(self._read(PLAN_FILE)))

    def instruction(self) -> str:
        """Return the profile's own words, empty when it has none.

        Raises:
            ProfileCompilationError: they cannot be read (`build-damaged`, `build-gone`).
        """
        return self._read(INSTRUCTION_FILE).removesuffix("\n")

    def origins(self) -> dict[str, Any]:
        """Return where each value of the plan comes from, by key path.

        Raises:
            ProfileCompilationError: they cannot be read (`build-damaged`, `build-gone`).
        """
        return dict(json.loads(self._read(ORIGINS_FILE)))

    def _read(self, name: str) -> str:
        try:
            content = (self.path / name).read_bytes()
        except OSError as error:
            if not self.path.is_dir():
                raise self._gone() from error
            raise self.damaged(f"has no {name}: {error}") from error
        if self.lock.written.get(name, "") not in ("", f"sha256:{hashlib.sha256(content).hexdigest()}"):
            raise self.damaged(f"has another {name} than the one that was locked")
        return content.decode("utf-8")

    def damaged(self, what: str) -> ProfileCompilationError:
        """Return the error for a build that is not what was made."""
        text = f"Build {self.build_id} of profile {self.profile_id} {what}"
        return ProfileCompilationError(text, code="build-damaged", hint="compile the profile again")

    def _gone(self) -> ProfileCompilationError:
        text = f"Build {self.build_id} of profile {self.profile_id} is gone: {self.path}"
        hint = "compile the profile again, and hold a build that you need longer"
        return ProfileCompilationError(text, code="build-gone", hint=hint)

    @contextmanager
    def hold(self) -> Iterator[Path]:
        """Keep the build from being removed, as long as the block runs or until this process ends.

        Raises:
            ProfileCompilationError: it is gone already (`build-gone`); compile the profile again.
        """
        if (place := _holds.add(self.path)) is None:
            raise self._gone()
        try:
            yield self.path
        finally:
            _holds.remove(place)

    @contextmanager
    def import_path(self) -> Iterator[None]:
        """Hold the build, and have its dependencies on `sys.path`, before what is installed.

        Run modules of the build only inside this block; blocks of one build share the entry. A package that was
        imported before, from elsewhere and in another version, stays what it is: that is logged.

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
                _place_before_packages(entry)
                importlib.invalidate_caches()
                for shared in find_shared(directory):
                    logger.warning("build %s of profile %s: %s", self.build_id, self.profile_id, shared)
            try:
                yield
            finally:
                if is_held:
                    sys_path.release(entry)


def _place_before_packages(entry: str) -> None:
    """Move an entry of `sys.path` to where installed packages begin: it outranks them, and nothing else."""
    sys.path.remove(entry)
    places = (index for index, path in enumerate(sys.path) if Path(path).name in _PACKAGES)
    sys.path.insert(next(places, len(sys.path)), entry)


def move_if_unheld(path: Path, target: Path) -> bool:
    """Rename a build's directory unless it is held; anyone who tries to hold it meanwhile finds it gone."""
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


_Place = tuple[int, int]
"""The device and the inode of a directory."""


class _Holds:
    """The shared locks of this process on builds: one for each build, however many hold it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[_Place, tuple[int, int]] = {}

    def add(self, path: Path) -> _Place | None:
        """Hold a build once more; None when it is gone."""
        with self._lock:
            try:
                found = path.stat()
                place = found.st_dev, found.st_ino
                descriptor, users = self._held.get(place) or (_open_shared(path, found), 0)
            except (FileNotFoundError, NotADirectoryError):
                return None
            if descriptor is None:
                return None
            self._held[place] = descriptor, users + 1
            return place

    def remove(self, place: _Place) -> None:
        with self._lock:
            descriptor, users = self._held.pop(place)
            if users > 1:
                self._held[place] = descriptor, users - 1
            else:
                os.close(descriptor)

    def begin_anew(self) -> None:
        """Go on in a process that was forked, which shares the locks that it inherited."""
        self._lock = threading.Lock()


_holds = _Holds()
os.register_at_fork(after_in_child=_holds.begin_anew)


def _open_shared(path: Path, found: os.stat_result) -> int | None:
    """Open a directory with a shared lock, which the operating system takes back when the process dies.

    None if another process has just moved it away.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)
        if os.path.samestat(os.fstat(descriptor), found) and os.path.samestat(path.stat(), found):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def find_shared(directory: Path) -> Iterator[str]:
    """Say which packages of a build's dependencies its modules will not get in this process, and who uses another."""
    for distribution in importlib.metadata.distributions(path=[str(directory)]):
        for module in sorted(_modules_of(distribution)):
            place = _place_of(module)
            if place is None or place == directory:
                continue
            version = _version_in(place, distribution.name)
            if version != distribution.version:
                yield (
                    f"it brings {distribution.name} {distribution.version}, but {module} {version or ''}".rstrip()
                    + f" from {place} is imported already, by {_users(module)}; run it in a process of its own"
                )


def _modules_of(distribution: Distribution) -> set[str]:
    """Return the names under which a distribution is imported."""
    files = (path for path in distribution.files or () if path.suffix == ".py")
    return {path.parts[0].removesuffix(".py") for path in files if ".dist-info" not in path.parts[0]}


def _place_of(module: str) -> Path | None:
    """Return the directory that an imported module was found in."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return None
    path = Path(file)
    return path.parent.parent if path.stem == "__init__" else path.parent


def _version_in(place: Path, name: str) -> str | None:
    found = next(iter(importlib.metadata.distributions(name=name, path=[str(place)])), None)
    return found.version if found is not None else None


def _users(module: str) -> str:
    """Name some of the modules that hold an imported one."""
    wanted = sys.modules[module]
    users = [name for name, each in list(sys.modules.items()) if name != module and _holds_package(each, wanted)]
    return ", ".join(sorted(users)[:3]) or "this process"


def _holds_package(module: object, wanted: object) -> bool:
    return any(value is wanted for value in vars(module).values()) if hasattr(module, "__dict__") else False
