"""What a cache of sources holds."""

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from .pruning import cache_entries
from .store import read_json, tree_bytes


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
