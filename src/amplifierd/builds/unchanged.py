"""Whether a build is still what was made: told from the status of its files, and from their content if that differs.

What is remembered of a build has what cannot be put back by whoever changes a file: the time of the change of its
status, and its number in the file system. It lies below `cache/`; where it is missing, the content is compared with the
lock. Bytecode that Python leaves beside the code does not count.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from pathlib import Path

from amplifier_foundation.sources.store import read_json, remove
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths
from amplifierd.stored_json import KEY, write_json

from .build_parts import find_damaged
from .fingerprints import look
from .lock import FILE_NAME, ProfileLock

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
