"""The parts of a build that its lock has hashes of: whether they are there, and whether they are what was locked."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.sources.store import read_json, remove
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths
from amplifierd.stored_json import KEY, write_json

from .build import WRITTEN
from .fingerprints import hash_files, list_content, look
from .lock import DEPENDENCIES_DIR, FILE_NAME, SECTIONS, ProfileLock


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
    """True if a part is there; a directory has something in it, unless it is one of context files."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is not None or path.parent.name == "contexts"
    except NotADirectoryError:
        return True
    except OSError:
        return False


def is_intact(directory: Path, part: Mapping[str, Any]) -> bool:
    """True if the files of a part have the hash that is locked for it."""
    path = directory / part["path"]
    try:
        content = list_content({"": path}, boundary=path, ref=part["path"])
        return part["content_hash"] in (None, hash_files(content))
    except (AmplifierError, OSError):
        return False


# Whether a build is still what was made: told from the status of its files, and from their content if that differs.
#
# What is remembered of a build has what cannot be put back by whoever changes a file: the time of the change of its
# status, and its number in the file system. It lies below `cache/`; where it is missing, the content is compared
# with the lock. Bytecode that Python leaves beside the code does not count.


_VERSION = 1


def find_changes(paths: Paths, profile_id: ProfileId, directory: Path, lock: ProfileLock) -> Sequence[str]:
    """Return what of a build is not what was made: paths of its parts; nothing is read while no file was touched.

    Blocks. Of a lock that is not the one that was remembered nothing is believed: it is all that is named.
    """
    known = read_json(_file(paths, profile_id, directory)) or {}
    if known.get("files") == look(directory):
        return ()
    if known.get("lock") not in (None, _lock_hash(directory)):
        return (FILE_NAME,)
    if damaged := find_damaged(directory, lock):
        return damaged
    settle(paths, profile_id, directory)
    return ()


def settle(paths: Paths, profile_id: ProfileId, directory: Path) -> None:
    """Remember what a build looks like."""
    content = {KEY: _VERSION, "lock": _lock_hash(directory), "files": look(directory)}
    with contextlib.suppress(OSError):  # what cannot be remembered is read again
        write_json(_file(paths, profile_id, directory), content, lasting=False)


def remembered(paths: Paths, profile_id: ProfileId, directory: Path) -> str | None:
    """Return what a build looked like when it was made or last compared, None when that is not known."""
    return (read_json(_file(paths, profile_id, directory)) or {}).get("files")


def forget(paths: Paths, profile_id: ProfileId, directory: Path) -> None:
    """Forget what a build looked like that is removed."""
    remove(_file(paths, profile_id, directory))


def _file(paths: Paths, profile_id: ProfileId, directory: Path) -> Path:
    return paths.cache / "builds" / profile_id.collection / profile_id.name / f"{directory.name}.json"


def _lock_hash(directory: Path) -> str:
    return hashlib.sha256((directory / FILE_NAME).read_bytes()).hexdigest()
