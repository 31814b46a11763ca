"""Removing from the cache what is no longer used."""

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.downloads.url_cache import META

from .store import discard, locked_now, read_json, remove, tree_bytes

DEFAULT_KEEP_DAYS = 30.0

_DAY_S = 86400.0
_SIDECARS = {"git": "{entry}.json", "fsspec": f"{{entry}}/{META}", "env": "{entry}/env.json"}
_LEFTOVERS = (".staging-*", ".trash-*", ".tmp-*")


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What was removed, and how many bytes that gave back."""

    removed: tuple[Path, ...]
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """One directory of a cache, the file that describes it, and the name of its lock."""

    kind: str
    path: Path
    sidecar: Path
    lock: str


def prune(
    cache_dir: Path,
    *,
    in_use: Iterable[Path | str] = (),
    keep_days: float = DEFAULT_KEEP_DAYS,
    max_bytes: int | None = None,
    dry_run: bool = False,
) -> PruneResult:
    """Remove the entries that are not in use and were not used for `keep_days`, and what crashes left behind.

    If all of them are larger than `max_bytes` together, those that were not used for longest go as well.
    `in_use` holds commits, names of entries, or paths: of an entry, or of anything inside one. When an entry was
    last used is when its sidecar was last read, where the file system keeps that time, else when it was written. An
    entry that is being worked on stays. With `dry_run` the result says what would be removed.
    """
    used = {str(item) for item in in_use}
    used_paths = [Path(item).resolve() for item in used if "/" in item]
    oldest = time.time() - keep_days * _DAY_S
    removed: list[Path] = []
    freed = 0
    entries = sorted(cache_entries(cache_dir), key=_last_used)
    excess = 0 if max_bytes is None else sum(tree_bytes(entry.path) for entry in entries) - max_bytes
    for entry in entries:
        real = entry.path.resolve()
        if entry.path.name in used or any(path.is_relative_to(real) for path in used_paths):
            continue
        if _last_used(entry) > oldest and freed >= excess:
            continue
        lock_path = cache_dir / "locks" / f"{entry.lock}.lock"
        with locked_now(lock_path) as held:
            if not held:
                continue
            freed += tree_bytes(entry.path)
            removed.append(entry.path)
            if dry_run:
                continue
            entry.sidecar.unlink(missing_ok=True)
            discard(entry.path)
            lock_path.unlink(missing_ok=True)
    leftovers = remove_leftovers(cache_dir, dry_run=dry_run)
    return PruneResult((*removed, *leftovers.removed), freed + leftovers.freed_bytes)


def remove_leftovers(cache_dir: Path, *, dry_run: bool = False) -> PruneResult:
    """Remove what crashes left more than a day ago; what is younger may be someone's work."""
    found = tuple(_leftovers(cache_dir, time.time() - _DAY_S))
    freed = sum(map(tree_bytes, found))
    for leftover in () if dry_run else found:
        remove(leftover)
    return PruneResult(found, freed)


def cache_entries(cache_dir: Path) -> Iterator[CacheEntry]:
    """Yield what a cache holds, kind by kind."""
    for kind, sidecar in _SIDECARS.items():
        for path in _visible(cache_dir / kind):
            if path.is_dir():
                yield CacheEntry(kind, path, Path(sidecar.format(entry=path)), f"{kind}-{_lock_key(kind, path.name)}")


def _lock_key(kind: str, name: str) -> str:
    """Return what the lock of an entry is named after; the forced installations of an environment share its lock."""
    if kind == "fsspec":
        return name[:16]
    return name.partition(".")[0] if kind == "env" else name


def _visible(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if not path.name.startswith("."))


def _last_used(entry: CacheEntry) -> float:
    """Return when an entry was written, or its sidecar read; looking through a directory is not using it."""
    times = [0.0]
    with contextlib.suppress(OSError):
        times.append(entry.path.stat().st_mtime)
    with contextlib.suppress(OSError):
        status = entry.sidecar.stat()
        times += [status.st_mtime, status.st_atime]
    return max(times)


def _leftovers(cache_dir: Path, oldest: float) -> Iterator[Path]:
    places = [cache_dir / "git", cache_dir / "env", cache_dir / "fsspec", *_visible(cache_dir / "fsspec")]
    for place in places:
        for pattern in _LEFTOVERS:
            for path in place.glob(pattern):
                with contextlib.suppress(OSError):
                    if path.stat().st_mtime < oldest:
                        yield path


# What a cache of sources holds.


@dataclass(frozen=True, slots=True)
class CachedSource:
    """One entry of a cache: a tree of a git commit, a download, or installed packages. `source` may be unknown."""

    kind: str
    path: Path
    source: str
    version: str
    fetched_at: str | None
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path)}


def list_cached(cache_dir: Path) -> tuple[CachedSource, ...]:
    """Return the entries of a cache; looking at them does not count as using them."""
    return tuple(
        _described(entry.kind, entry.path, _read_unnoticed(entry.sidecar)) for entry in cache_entries(cache_dir)
    )


def _described(kind: str, path: Path, about: dict[str, Any]) -> CachedSource:
    source = str(about.get("url") or about.get("source") or "")
    version = path.name if kind == "git" else str(about.get("sha256") or path.name)
    return CachedSource(kind, path, source, version, about.get("fetched_at"), tree_bytes(path))


def _read_unnoticed(sidecar: Path) -> dict[str, Any]:
    """Read a sidecar and put its times back: pruning goes by them."""
    try:
        before = sidecar.stat()
        about = read_json(sidecar)
        os.utime(sidecar, ns=(before.st_atime_ns, before.st_mtime_ns))
    except OSError:
        return {}
    return about or {}
