"""Reading a tree into a manifest: what changed is hashed and stored, what did not is taken from the cache."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from amplifier_system.threads import Stop

from .ignore_rules import IGNORE_FILE, LARGEST_FILE, IgnoreChain, IgnoreFile, IgnoreRules, read_outer_rules
from .manifest import Entry, Manifest, ancestors
from .object_store import PackWriter, ShorterThanAnnounced
from .root_directory import RootDirectory, open_file, permissions
from .stat_cache import CachedFile, CachedFolder, StatCache, is_settled, signature

_SMALL = 1024 * 1024  # bytes of a file that is read in one piece
_ATTEMPTS = 3  # at a file that got shorter while it was read


@dataclass(frozen=True)
class Bounds:
    """How much a snapshot may take; beyond it only files that file tools touched are kept."""

    max_files: int
    max_bytes: int
    timeout_seconds: float


@dataclass(frozen=True)
class Observation:
    """A manifest, why something of the tree is not in it, and which files could not be read, in printable form."""

    manifest: Manifest
    reason: str
    unreadable: tuple[str, ...]


class BeyondBounds(Exception):
    """The tree is larger, or takes longer, than the bounds allow; the message says which."""


class Observer:
    """Reads one tree, again and again; `cache` is what it knows from the last time."""

    def __init__(self, root: Path, bounds: Bounds, cache: StatCache, excluded: Iterable[Path] = ()) -> None:
        self._root = root
        self._bounds = bounds
        self._excluded = frozenset(map(str, excluded))
        self.cache = cache

    def observe(self, writer: PackWriter, previous: Manifest | None, watch: Iterable[str], stop: Stop) -> Observation:
        """Return what the tree is now. `watch` names paths to look at in any case, ignored or beyond the bounds.

        What `previous` had and is ignored by now is watched too: files that are kept stay kept.

        Raises:
            OSError: the root is not a directory that can be read.
            Stopped: it was asked to.
        """
        with RootDirectory(self._root) as root:
            reading = _Reading(root, self._bounds, self.cache, writer, stop)
            try:
                entries, rules = self._read_tree(root, reading)
                covers_tree, reason = True, ""
            except BeyondBounds as error:
                entries, rules = {}, IgnoreRules()
                covers_tree, reason = False, str(error)
            watched = {*watch, *(previous.watched if previous else ())}
            watched |= {above for path in watched for above in ancestors(path)}
            if covers_tree:
                before = previous.entries.keys() if previous else ()
                watched = {path for path in {*watched, *before} - entries.keys() if rules.ignores(path)}
            entries |= reading.read_watched(watched)
            if covers_tree:
                self.cache.keep_only(entries.keys())
        manifest = Manifest(
            entries=entries,
            rules=rules,
            covers_tree=covers_tree,
            watched=frozenset(watched),
            unknown=frozenset(reading.unreadable | reading.special),
        )
        if reason:
            reason += ": only files that file tools touch are kept"
        elif reading.unreadable:
            reason = f"{len(reading.unreadable)} files or directories could not be read"
        return Observation(manifest, reason, tuple(map(_printable, sorted(reading.unreadable))))

    def look(self, writer: PackWriter, manifest: Manifest, paths: Iterable[str], stop: Stop) -> Manifest:
        """Return a manifest with what is at these paths now; they are watched from then on."""
        watched = frozenset(paths)
        with RootDirectory(self._root) as root:
            reading = _Reading(root, self._bounds, self.cache, writer, stop)
            entries = reading.read_watched(watched)
        return replace(
            manifest,
            entries={**manifest.entries, **entries},
            watched=manifest.watched | watched,
            unknown=manifest.unknown | reading.unreadable | reading.special,
        )

    def _read_tree(self, root: RootDirectory, reading: _Reading) -> tuple[dict[str, Entry], IgnoreRules]:
        scan = walk(
            root,
            read_outer_rules(self._root),
            verdicts=self.cache.folders,
            excluded=frozenset(_identities(self._excluded)),
            counted=reading.count,
        )
        reading.special |= scan.special
        reading.unreadable |= scan.unreadable
        entries = reading.read_all(scan)
        self.cache.replace_folders(scan.verdicts)
        return entries, scan.rules


def _cached(status: os.stat_result, read_ns: int, entry: Entry) -> CachedFile:
    found = signature(status)
    return CachedFile(found, is_settled(found, read_ns), entry)


def _printable(path: str) -> str:
    """Return a path as text for people: bytes that are not UTF-8 are shown by their numbers."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _identities(folders: Iterable[str]) -> Iterable[tuple[int, int]]:
    for folder in folders:
        with suppress(OSError):
            status = os.stat(folder)  # noqa: PTH116 - in every turn
            if stat.S_ISDIR(status.st_mode):
                yield status.st_dev, status.st_ino


class _Reading:
    """One pass over a tree, with what it has used up and what it could not read."""

    def __init__(self, root: RootDirectory, bounds: Bounds, cache: StatCache, writer: PackWriter, stop: Stop) -> None:
        self._root = root
        self._bounds = bounds
        self._cache = cache
        self._writer = writer
        self._stop = stop
        self._deadline_s = time.monotonic() + bounds.timeout_seconds
        self._has_deadline = True
        self._files = self._bytes = 0
        self.special: set[str] = set()
        self.unreadable: set[str] = set()

    def count(self, files: int, size: int) -> None:
        self._files += files
        self._bytes += size
        if self._files > self._bounds.max_files:
            raise BeyondBounds(f"there are more than {self._bounds.max_files} files (checkpoints.max_files)")
        if self._bytes > self._bounds.max_bytes:
            raise BeyondBounds(f"the files have more than {self._bounds.max_bytes} bytes (checkpoints.max_bytes)")
        self._check_time()

    def read_all(self, scan: TreeScan) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        for path, found in scan.folders.items():
            prefix = f"{path}/" if path else ""
            changed: list[str] = []
            for name, status in found.items():
                here = prefix + name
                if (entry := self._cache.find(here, status)) is not None:
                    entries[here] = entry
                elif stat.S_ISDIR(status.st_mode):
                    entries[here] = Entry("directory", permissions(status), "", 0)
                else:
                    changed.append(name)
            if changed:
                entries |= self._read_files(path, changed)
        return entries

    def read_watched(self, paths: Iterable[str]) -> dict[str, Entry]:
        """Read single paths, whatever the time; a file that would go beyond the bytes is not known afterwards."""
        self._has_deadline = False
        entries: dict[str, Entry] = {}
        left = self._bounds.max_bytes
        for path in sorted(paths):
            try:
                status = self._root.status(path)
            except OSError:
                self.unreadable.add(path)
                continue
            if status is None:
                continue
            if stat.S_ISDIR(status.st_mode):
                entries[path] = Entry("directory", permissions(status), "", 0)
                continue
            left -= status.st_size
            if left < 0 or not (stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)):
                self.special.add(path)
                continue
            if (entry := self._cache.find(path, status)) is not None:
                entries[path] = entry
            else:
                folder, _, name = path.rpartition("/")
                entries |= self._read_files(folder, [name])
        return entries

    def _read_files(self, path: str, names: list[str]) -> dict[str, Entry]:
        """Read files and symlinks of one directory; what has vanished meanwhile is not there."""
        prefix = f"{path}/" if path else ""
        entries: dict[str, Entry] = {}
        try:
            with self._root.opened(path) as folder:
                for name in names:
                    self._check_time()
                    try:
                        cached = self._read_file(folder, name)
                    except FileNotFoundError:
                        continue
                    except OSError:
                        self.unreadable.add(prefix + name)
                        continue
                    if cached is None:
                        self.special.add(prefix + name)
                        continue
                    self._cache.add(prefix + name, cached)
                    entries[prefix + name] = cached.entry
        except FileNotFoundError:
            pass
        except OSError:
            self.unreadable |= {prefix + name for name in names}
        return entries

    def _read_file(self, folder: int, name: str) -> CachedFile | None:
        """Store a file's contents, or a symlink's target; None for what is neither."""
        now_ns = time.time_ns()
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=folder))
            entry = Entry("symlink", 0, self._writer.add("blob", target), len(target))
            return _cached(status, now_ns, entry)
        if not stat.S_ISREG(status.st_mode):
            return None
        descriptor = open_file(name, folder=folder)
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            for _ in range(_ATTEMPTS):
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode):
                    return None
                file.seek(0)
                with suppress(ShorterThanAnnounced):
                    oid = self._store(file, status.st_size)
                    return _cached(status, now_ns, Entry("file", permissions(status), oid, status.st_size))
        raise BlockingIOError(f"{name} got shorter while it was read")

    def _store(self, file: IO[bytes], size: int) -> str:
        if size > _SMALL:
            return self._writer.add_large(size, self._timed(file))
        if len(data := file.read(size)) < size:
            raise ShorterThanAnnounced
        return self._writer.add("blob", data)

    def _timed(self, file: IO[bytes]) -> Callable[[int], bytes]:
        def read(size: int) -> bytes:
            self._check_time()
            return file.read(size)

        return read

    def _check_time(self) -> None:
        self._stop.check()
        if self._has_deadline and time.monotonic() > self._deadline_s:
            limit = f"{self._bounds.timeout_seconds:g} s (checkpoints.timeout_seconds)"
            raise BeyondBounds(f"reading the files took longer than {limit}")


# Looking at every file of a tree that is not ignored; nothing is read but ignore files.


Counted = Callable[[int, int], None]

_BATCH = 1000
_KEPT = {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}


@dataclass
class TreeScan:
    """What was seen: the status of each file, symlink and directory by its path, in groups by directory."""

    rules: IgnoreRules
    folders: dict[str, dict[str, os.stat_result]] = field(default_factory=dict)
    verdicts: dict[str, CachedFolder] = field(default_factory=dict)
    special: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)


def walk(
    root: RootDirectory,
    outer: IgnoreChain,
    *,
    verdicts: dict[str, CachedFolder],
    excluded: frozenset[tuple[int, int]],
    counted: Counted,
) -> TreeScan:
    """Look at the whole tree. Every `.git` is left out, and so are the `excluded` (device and inode) directories.

    `counted` is told how many files and bytes each directory adds, and ends the walk with whatever it raises;
    `verdicts` are those of an earlier walk, which hold as long as the ignore files are the same.
    """
    inner: dict[str, IgnoreFile] = {}
    scan = TreeScan(IgnoreRules(outer, inner))
    waiting = [("", outer)]
    while waiting:
        path, chain = waiting.pop()
        try:
            with root.opened(path) as folder:
                names = list(os.scandir(folder))
                if text := _read_ignore_file(folder, names):
                    inner[path] = IgnoreFile(path, "", text)
                    chain = chain.with_file(inner[path])
                found = _look(path, names, chain, scan, verdicts.get(path), excluded, counted)
        except FileNotFoundError:
            continue
        except OSError:
            scan.unreadable.add(path)
            continue
        scan.folders[path] = found
        prefix = f"{path}/" if path else ""
        size = below = 0
        for name, status in found.items():
            if stat.S_ISDIR(status.st_mode):
                waiting.append((prefix + name, chain))
                below += 1
            else:
                size += status.st_size
        counted(len(found) - below, size)
    return scan


def _look(
    path: str,
    names: list[os.DirEntry[str]],
    chain: IgnoreChain,
    scan: TreeScan,
    cached: CachedFolder | None,
    excluded: frozenset[tuple[int, int]],
    counted: Counted,
) -> dict[str, os.stat_result]:
    """Return the status of what counts in one directory."""
    prefix = f"{path}/" if path else ""
    nothing: frozenset[str] = frozenset()
    is_valid = cached is not None and cached.fingerprint == chain.fingerprint
    kept, ignored = (cached.kept, cached.ignored) if cached is not None and is_valid else (nothing, nothing)
    found: dict[str, os.stat_result] = {}
    new_kept, new_ignored = set(), set()
    for number, entry in enumerate(names):
        if number % _BATCH == _BATCH - 1:
            counted(0, 0)  # a single directory may hold millions
        is_directory = entry.is_dir(follow_symlinks=False)
        key = f"{entry.name}/" if is_directory else entry.name
        if key in ignored or (key not in kept and chain.ignores(prefix + entry.name, is_directory=is_directory)):
            new_ignored.add(key)
            continue
        new_kept.add(key)
        try:
            status = entry.stat(follow_symlinks=False)
        except FileNotFoundError:
            continue
        if is_directory and (status.st_dev, status.st_ino) in excluded:
            continue
        if stat.S_IFMT(status.st_mode) in _KEPT:
            found[entry.name] = status
        else:
            scan.special.add(prefix + entry.name)
    if is_valid and cached is not None and cached.kept == new_kept and cached.ignored == new_ignored:
        scan.verdicts[path] = cached
    else:
        scan.verdicts[path] = CachedFolder(chain.fingerprint, frozenset(new_kept), frozenset(new_ignored))
    return found


def _read_ignore_file(folder: int, names: list[os.DirEntry[str]]) -> str:
    """Return the text of a directory's ignore file; only a plain file counts, and no symlink."""
    if not any(entry.name == IGNORE_FILE for entry in names):
        return ""
    try:
        descriptor = open_file(IGNORE_FILE, folder=folder)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
            return ""
        return file.read(LARGEST_FILE).decode("utf-8", "surrogateescape")
