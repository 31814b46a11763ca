"""Looking at every file of a tree that is not ignored; nothing is read but ignore files."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field

from .ignore_rules import IGNORE_FILE, LARGEST_FILE, IgnoreChain, IgnoreFile, IgnoreRules
from .root_directory import RootDirectory, open_file
from .stat_cache import CachedFolder

Counted = Callable[[int, int], None]

_BATCH = 1000
_KEPT = {stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK}


@dataclass
class Sighting:
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
) -> Sighting:
    """Look at the whole tree. Every `.git` is left out, and so are the `excluded` (device and inode) directories.

    `counted` is told how many files and bytes each directory adds, and ends the walk with whatever it raises;
    `verdicts` are those of an earlier walk, which hold as long as the ignore files are the same.
    """
    inner: dict[str, IgnoreFile] = {}
    sighting = Sighting(IgnoreRules(outer, inner))
    waiting = [("", outer)]
    while waiting:
        path, chain = waiting.pop()
        try:
            with root.opened(path) as folder:
                names = list(os.scandir(folder))
                if text := _read_ignore_file(folder, names):
                    inner[path] = IgnoreFile(path, "", text)
                    chain = chain.with_file(inner[path])
                found = _look(path, names, chain, sighting, verdicts.get(path), excluded, counted)
        except FileNotFoundError:
            continue
        except OSError:
            sighting.unreadable.add(path)
            continue
        sighting.folders[path] = found
        prefix = f"{path}/" if path else ""
        size = below = 0
        for name, status in found.items():
            if stat.S_ISDIR(status.st_mode):
                waiting.append((prefix + name, chain))
                below += 1
            else:
                size += status.st_size
        counted(len(found) - below, size)
    return sighting


def _look(
    path: str,
    names: list[os.DirEntry[str]],
    chain: IgnoreChain,
    sighting: Sighting,
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
            sighting.special.add(prefix + entry.name)
    if is_valid and cached is not None and cached.kept == new_kept and cached.ignored == new_ignored:
        sighting.verdicts[path] = cached
    else:
        sighting.verdicts[path] = CachedFolder(chain.fingerprint, frozenset(new_kept), frozenset(new_ignored))
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
