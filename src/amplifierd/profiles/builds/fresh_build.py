"""A build that was found to be fresh, and all files by which it was: while none of them is touched, it still is.

A look compares texts, hashes and locks. Most of the time nothing has happened since the last one, and that is told by
the status of files alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths
from amplifierd.profiles.documents.inheritance import MergedProfile

from .build import Build
from .build_parts import remembered
from .fingerprints import fingerprints_file, is_leftover, look
from .installed_modules import InstalledModules, installed_modules
from .profile_catalogue import ProfileCatalogue, Roots
from .resources import MACHINE, Wanted
from .staleness import Inspection

if TYPE_CHECKING:
    from amplifier_foundation.modules.requirements import HostPackages

_SETTLED_NS = 100_000_000
_COARSE_NS = 2_000_000_000  # for file systems whose clocks know whole seconds
_SECOND_NS = 1_000_000_000

Status = tuple[int, int, int, int, int]


class _NotSeenError(Exception):
    """Something that the build depends on is not told by the status of files."""


@dataclass(frozen=True)
class FreshBuild:
    """A fresh build, and what every file and directory was like that says so; one that was not there has None."""

    build: Build
    chain: tuple[ProfileId, ...]
    _files: Mapping[str, Status | None]
    _installed: InstalledModules
    _host: HostPackages | None
    _cache_dir: Path
    _build_status: str

    def holds(self) -> bool:
        """True if nothing was touched since; blocks while it looks."""
        if installed_modules() is not self._installed:
            return False
        if self._host is not None and _host(self._cache_dir) is not self._host:
            return False
        if not all(_status(path) == seen for path, seen in self._files.items()):
            return False
        try:
            return look(self.build.path) == self._build_status
        except OSError:
            return False


def now_ns() -> int:
    """Return the moment at which a look begins."""
    return time.time_ns()


def fresh_build(
    paths: Paths,
    catalogue: ProfileCatalogue,
    merged: MergedProfile,
    roots: Roots,
    inspection: Inspection,
    build: Build,
    began_ns: int,
) -> FreshBuild | None:
    """Return a build that a look found to be fresh with its files, None when the next look has to be as thorough.

    That is so when something was touched just before the look or since it began: a further change could leave the same
    times behind. And when a source was not found: it may come back.
    """
    if inspection.warnings:
        return None
    installed = installed_modules()
    try:
        places = {*_texts(paths, catalogue, merged), *_build_files(paths, build)}
        places.update(_sources(inspection, roots, installed))
        files = {place: _settled(place, began_ns) for place in places}
        if (status := remembered(paths, build.profile_id, build.path)) is None:
            return None
    except (_NotSeenError, OSError):
        return None
    chain = (merged.profile_id, *(each.profile_id for each in merged.ancestors))
    host = _host(paths.cache) if build.lock.pins("host") else None
    return FreshBuild(build, chain, files, installed, host, paths.cache, status)


def _texts(paths: Paths, catalogue: ProfileCatalogue, merged: MergedProfile) -> Iterator[str]:
    """Yield the files that say what the profile is."""
    yield str(paths.collections_file)
    yield str(paths.collections_lock)
    for document in (merged.document, *merged.ancestors):
        yield str(paths.profile_file(document.profile_id))
        yield str(catalogue.authored_file(document.profile_id))
        overlay = paths.overlay_file(document.profile_id)
        if overlay.exists():
            raise _NotSeenError  # its secrets are kept whenever it is read
        yield str(overlay)


def _build_files(paths: Paths, build: Build) -> Iterator[str]:
    """Yield what there must be of the build, and what is known to be damaged of it."""
    published = paths.profile_dir(build.profile_id)
    yield str(published)
    yield str(published / "profile.lock")
    yield str(fingerprints_file(paths, build.profile_id))


def _sources(inspection: Inspection, roots: Roots, installed: InstalledModules) -> Iterator[str]:
    """Yield the files of this machine that the build was made from."""
    for root in roots.values():
        yield str(root.path)
        yield str(root.path / "agents")
    for key, resolved in inspection.near.items():
        wanted = inspection.wanted[key]
        if resolved is None:
            module = installed.find(key[1], wanted.ref)
            if module is None:
                raise _NotSeenError
            yield from _tree(str(module.path))
        elif _is_in_collection(wanted):
            yield from _tree(str(resolved.path))
        else:
            raise _NotSeenError


def _is_in_collection(wanted: Wanted) -> bool:
    """True if a resource is a text of a collection, and not a module or a path that may lead anywhere."""
    return not wanted.is_module and wanted.is_relative and wanted.base is not None and wanted.base.collection != MACHINE


def _tree(path: str) -> Iterator[str]:
    """Yield a file, or a directory with everything in it that counts."""
    yield path
    if Path(path).is_dir():
        with os.scandir(path) as found:
            for child in found:
                if is_leftover(child.name):
                    continue
                if child.is_symlink():
                    raise _NotSeenError
                yield from _tree(child.path)


def _settled(path: str, began_ns: int) -> Status | None:
    status = _status(path)
    if status is not None:
        touched_ns = max(status[0], status[1])
        if touched_ns > began_ns - (_SETTLED_NS if touched_ns % _SECOND_NS else _COARSE_NS):
            raise _NotSeenError
    return status


def _status(path: str) -> Status | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - asked for every file before every session
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino, found.st_mode


def _host(cache_dir: Path) -> HostPackages:
    from amplifier_foundation.modules.requirements import host_packages  # few builds lean on the host's packages

    return host_packages(cache_dir)
