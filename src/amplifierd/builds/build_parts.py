"""The parts of a build that its lock has hashes of: whether they are there, and whether they are what was locked."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from amplifier_core.exceptions import AmplifierError

from .build import WRITTEN
from .fingerprints import hash_files, list_content
from .lock import DEPENDENCIES_DIR, SECTIONS, ProfileLock


def other_parts(lock: ProfileLock) -> Iterator[Mapping[str, Any]]:
    """Yield what a build has beside its resources: what was installed, and the texts that its compile wrote."""
    if (dependencies := lock.dependencies) is not None:
        yield dependencies
    yield from ({"path": name, "content_hash": lock.written.get(name)} for name in WRITTEN)


def find_damaged(directory: Path, lock: ProfileLock) -> Sequence[str]:
    """Return the paths of what is gone, not what was locked, or not locked at all; every file is read."""
    resources = (entry for _, entry in lock.resources() if entry["path"] and entry["status"] == "ok")
    parts = [*resources, *other_parts(lock)]
    damaged = [part for part in parts if not (is_there(directory / part["path"]) and is_intact(directory, part))]
    return [*(part["path"] for part in damaged), *find_added(directory, {part["path"] for part in parts})]


def find_added(directory: Path, locked: Collection[str]) -> Sequence[str]:
    """Return what would be used if it were in a build, is in this one, and is not locked."""
    found = [f"{section}/{path.name}" for section in SECTIONS for path in _children(directory / section)]
    found += [DEPENDENCIES_DIR] if (directory / DEPENDENCIES_DIR).exists() else []
    return sorted(set(found) - set(locked))


def _children(directory: Path) -> list[Path]:
    return list(directory.iterdir()) if directory.is_dir() else []


def is_there(path: Path) -> bool:
    """Say whether a part is there; a directory has something in it, unless it is one of context files."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None or path.parent.name == "contexts"
    except NotADirectoryError:
        return True
    except OSError:
        return False


def is_intact(directory: Path, part: Mapping[str, Any]) -> bool:
    """Say whether the files of a part have the hash that is locked for it."""
    path = directory / part["path"]
    try:
        content = list_content({"": path}, boundary=path, ref=part["path"])
        return part["content_hash"] in (None, hash_files(content))
    except (AmplifierError, OSError):
        return False
