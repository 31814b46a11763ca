"""Dependency environments: `<cache>/env/<hash>/`, one directory for each set of requirements, never changed.

A directory is put together under a temporary name and renamed when its `env.json` is written: one without that file is
what a crash left, and is discarded. A forced installation makes `<hash>.<n>` beside it; the highest number counts.
"""

import asyncio
import hashlib
import logging
import os
import platform
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from amplifier_foundation.sources.cache_context import Slots
from amplifier_foundation.sources.store import (
    WorkerBatches,
    discard,
    locked,
    make_directory,
    now,
    read_json,
    remove,
    unique,
    write_json,
)
from amplifier_system.tasks import run_to_end

from .installer import InstallError, NoInstallerError, install_together
from .requirements import HostPackages, host_packages

logger = logging.getLogger(__name__)

T = TypeVar("T")

MARKER = "env.json"

_LOCK_TIMEOUT_S = 1800.0
_FORMAT = 1
_installers = Slots(4)
_readers = WorkerBatches[Any]()


@dataclass(frozen=True, slots=True)
class Environment:
    """The directory for a set of requirements: `path` is None while it has not been made, or if none is needed."""

    key: str | None
    path: Path | None


class Environments:
    """The dependency environments of one cache directory.

    `extras` are those of ours that are in use, None for all: what only the others brought into the host is there to be
    used, and nothing has to agree with it.
    """

    def __init__(self, cache_dir: Path, *, extras: Collection[str] | None = None) -> None:
        self._cache_dir, self._extras = cache_dir, extras
        self._directory = cache_dir / "env"

    def find(self, requirements: Sequence[str]) -> Environment:
        """Look whether there is a directory for these requirements, and whether one is needed; only reads."""
        if not requirements:
            return Environment(None, None)
        host = host_packages(self._cache_dir)
        if all(host.satisfies(line) for line in requirements):
            return Environment(None, None)
        key = environment_key(requirements, self._host())
        return Environment(key, self._complete(key))

    async def ensure(
        self,
        owner: str,
        requirements: Sequence[str],
        *,
        force: bool = False,
        on_install: Callable[[], None] | None = None,
    ) -> Path | None:
        """Return the directory for these requirements, made if need be; None when the host provides everything.

        `owner` is named in errors. `force` makes a new one even if there is one.

        Raises:
            InstallError, NoInstallerError: it cannot be made; nothing is left of the attempt.
        """
        found = await read_in_turn(lambda: self.find(requirements))
        if found.key is None or (found.path is not None and not force):
            return found.path
        if on_install is not None:
            on_install()
        try:
            return await self._make(found.key, owner, requirements, known=found.path)
        except (InstallError, NoInstallerError) as error:
            logger.error("the dependencies of %s are not installed: %s", owner, error)  # noqa: TRY400 - raised, too
            raise

    async def _make(self, key: str, owner: str, requirements: Sequence[str], known: Path | None) -> Path:
        lock = self._cache_dir / "locks" / f"env-{key}.lock"
        async with locked(lock, ref=f"the dependencies of {owner}", timeout_s=_LOCK_TIMEOUT_S, on_wait=_nothing):
            made = await asyncio.to_thread(self._complete, key)
            if made is not None and made != known:
                return made  # another process did it meanwhile
            async with _installers.here():
                return await self._install(key, owner, requirements)

    async def _install(self, key: str, owner: str, requirements: Sequence[str]) -> Path:
        staging = self._directory / f".staging-{key}-{unique()}"
        host = await asyncio.to_thread(self._begin, key)
        try:
            logger.info("installing the dependencies of %s: %s", owner, ", ".join(requirements))
            pins = await install_together({owner: requirements}, staging, host)
            sidecar = {
                "format_version": _FORMAT,
                "requirements": sorted(requirements),
                "pins": list(pins.build),
                "host": list(pins.host),
                "python": _python(),
                "platform": _platform(),
                "created_at": now(),
            }
            return await asyncio.to_thread(self._publish, key, staging, sidecar)
        finally:
            await run_to_end(asyncio.to_thread(remove, staging))

    def _begin(self, key: str) -> HostPackages:
        """Remove what a crash left of this environment; the caller holds its lock."""
        make_directory(self._directory)
        for leftover in self._directory.glob(f".staging-{key}-*"):
            remove(leftover)
        for number, path in self._numbered(key):
            if read_json(path / MARKER) is None:
                logger.warning("%s is incomplete (number %d) and is removed", path, number)
                discard(path)
        return self._host()

    def _host(self) -> HostPackages:
        """Return what installed packages have to agree with."""
        return host_packages(self._cache_dir, extras=self._extras)

    def _publish(self, key: str, staging: Path, sidecar: dict[str, object]) -> Path:
        write_json(staging / MARKER, sidecar)
        taken = [number for number, _ in self._numbered(key)]
        path = self._directory / (f"{key}.{max(taken) + 1}" if taken else key)
        staging.rename(path)
        return path

    def _complete(self, key: str) -> Path | None:
        """Return the newest complete directory for a key. Prune goes by when its `env.json` was last read."""
        found = sorted(self._numbered(key), reverse=True)
        return next((path for _, path in found if read_json(path / MARKER) is not None), None)

    def _numbered(self, key: str) -> list[tuple[int, Path]]:
        try:
            names = os.listdir(self._directory)  # noqa: PTH208 - names are enough
        except FileNotFoundError:
            return []
        found = []
        for name in names:
            stem, _, number = name.partition(".")
            if stem == key and (not number or number.isdigit()):
                found.append((int(number or 0), self._directory / name))
        return found


async def read_in_turn(read: Callable[[], T]) -> T:
    """Read off the event loop; those who read at the same time share a thread."""
    found: T = await _readers.run(read)
    return found


def environment_key(requirements: Sequence[str], host: HostPackages) -> str:
    """Return the name of the directory for these requirements on this Python, platform and host."""
    parts = [*sorted(requirements), "", *host.constraints(requirements), "", _python(), _platform()]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def _platform() -> str:
    return f"{sys.platform}-{platform.machine()}"


def _nothing() -> None:
    """Ignore that another process is at work on the same environment: no one needs to know."""
