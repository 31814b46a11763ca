"""What is known of files that have not changed since they were read, so that an unchanged tree is not read again."""

from __future__ import annotations

import json
import os
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from amplifier_system.files import write_atomically
from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.stored_json import StoredFormat

from .manifest import Entry
from .object_store import ObjectStore

FORMAT = StoredFormat(version=1)

Signature = tuple[int, int, int, int, int]

_TICK_NS = 20_000_000  # more than the clock of a file system with fine times lags behind
_COARSE_TICK_NS = 2_000_000_000  # one that knows whole seconds, or every second one


def signature(status: os.stat_result) -> Signature:
    """Return what differs once a file was changed; the time of the inode's change cannot be set by anyone."""
    return (status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class CachedFile(NamedTuple):
    """A file or symlink as it was read, and whether a change after that would show in the signature."""

    signature: Signature
    is_settled: bool
    entry: Entry


def is_settled(found: Signature, read_ns: int) -> bool:
    """True if a change after the reading would show: not if the file was as fresh then as the clock ticks."""
    changed_ns = max(found[2:4])
    is_coarse = found[2] % 1_000_000_000 == 0
    return changed_ns + (_COARSE_TICK_NS if is_coarse else _TICK_NS) < read_ns


class CachedFolder(NamedTuple):
    """Which names of a folder the ignore files with this fingerprint keep, and which not; directories end in `/`."""

    fingerprint: str
    kept: frozenset[str]
    ignored: frozenset[str]


@dataclass
class StatCache:
    """The cache of one tree; `is_changed` since it was loaded or saved."""

    files: dict[str, CachedFile] = field(default_factory=dict)
    folders: dict[str, CachedFolder] = field(default_factory=dict)
    is_changed: bool = False

    def find(self, path: str, status: os.stat_result) -> Entry | None:
        """Return the entry of a file that is as it was when it was read."""
        cached = self.files.get(path)
        if cached is not None and cached.is_settled and cached.signature == signature(status):
            return cached.entry
        return None

    def add(self, path: str, file: CachedFile) -> None:
        self.files[path] = file
        self.is_changed = True

    def keep_only(self, paths: Set[str]) -> None:
        """Forget files that are gone."""
        if gone := self.files.keys() - paths:
            self.files = {path: file for path, file in self.files.items() if path not in gone}
            self.is_changed = True

    def replace_folders(self, folders: dict[str, CachedFolder]) -> None:
        self.is_changed = self.is_changed or folders != self.folders
        self.folders = folders

    def save(self, path: Path) -> None:
        value = {
            "format_version": FORMAT.version,
            "files": {name: [*file.signature, file.is_settled, *file.entry] for name, file in self.files.items()},
            "folders": {
                name: [folder.fingerprint, sorted(folder.kept), sorted(folder.ignored)]
                for name, folder in self.folders.items()
            },
        }
        text = json.dumps(value, separators=(",", ":"))
        write_atomically(path, text.encode("ascii"), private=True, lasting=False)
        self.is_changed = False


def load_cache(path: Path, store: ObjectStore) -> StatCache:
    """Return what was saved, as far as the store has the contents; nothing when it cannot be read."""
    try:
        value: dict[str, Any] = FORMAT.read(path) or {"files": {}, "folders": {}}
        files = {name: _parse_file(*numbers) for name, numbers in value["files"].items()}
        folders = {name: CachedFolder(f, frozenset(k), frozenset(i)) for name, (f, k, i) in value["folders"].items()}
    except (ValueError, KeyError, TypeError, FormatUnsupportedError):
        return StatCache()
    return StatCache({name: file for name, file in files.items() if file.entry.oid in store}, folders)


def _parse_file(mode: int, size: int, mtime: int, ctime: int, inode: int, settled: bool, *entry: Any) -> CachedFile:
    return CachedFile((mode, size, mtime, ctime, inode), settled, Entry(*entry))
