"""References to paths of this machine: never cached, used in place."""

import os
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.resolution import path_in_fragment

from .reference import FileReference, checked_subpath
from .resolved import ResolvedRef
from .store import now
from .work import CacheContext, find_subpath

_ENTRY_DEPTH = {"git": 2, "fsspec": 3}  # git/<commit>, fsspec/<hash>/<name>


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A path as the file system knows it, and the path inside of it that was written behind a `#`."""

    path: Path
    subpath: str | None


def find_local(reference: FileReference, base_dir: Path | None) -> LocalPath:
    """Return the first reading of a path that exists, else the likeliest one.

    A path counts literally; if there is none by that name, a `#` in it starts a fragment, and then `%20` and its like
    are decoded.
    """
    readings = [(reference.path, reference.subpath)]
    path, mark, fragment = reference.path.partition("#")
    if mark and path:
        readings.append((path, path_in_fragment(fragment)))
    likeliest = readings[-1]
    readings += [(unquote(text), subpath) for text, subpath in readings]
    found = (reading for reading in readings if "\0" not in reading[0] and _absolute(reading[0], base_dir).exists())
    text, subpath = next(found, likeliest)
    return LocalPath(_absolute(text, base_dir), subpath)


def tree_in_cache(cache_dir: Path, path: Path) -> Path | None:
    """Return the tree of the cache entry that a path belongs to, None for a path outside of the cache."""
    cache, real = Path(os.path.realpath(cache_dir)), Path(os.path.realpath(path))
    if not real.is_relative_to(cache):
        return None
    parts = real.relative_to(cache).parts
    depth = _ENTRY_DEPTH.get(parts[0], 0) if parts else 0
    return cache.joinpath(*parts[:depth]) if 0 < depth <= len(parts) else None


class LocalSource:
    """Resolves paths of this machine."""

    def __init__(self, context: CacheContext) -> None:
        self._context = context

    def resolve(self, reference: FileReference, ref: str, *, base_dir: Path | None) -> ResolvedRef:
        """Return the path; nothing is read but whether it is there."""
        found = find_local(reference, base_dir)
        self._context.check_allowed(found.path, ref)
        self._check_stays_in_entry(reference, found.path, ref, base_dir)
        if not found.path.exists():
            raise RefResolutionError(f"File not found: {found.path} does not exist", ref, "not-found")
        subpath = checked_subpath(found.subpath, ref)
        path = find_subpath(found.path, subpath, ref)
        self._context.check_allowed(path, ref)
        root = found.path if found.path.is_dir() else found.path.parent
        return ResolvedRef(
            ref=ref, kind="local", path=path, root=root, resolved_at=now(), url=found.path.as_uri(), subpath=subpath
        )

    def _check_stays_in_entry(self, reference: FileReference, path: Path, ref: str, base_dir: Path | None) -> None:
        """Refuse a relative path in fetched content that leads out of that content."""
        tree = tree_in_cache(self._context.cache_dir, base_dir) if base_dir is not None else None
        relative = not reference.path.startswith(("/", "~/"))
        if tree is not None and relative and not Path(os.path.realpath(path)).is_relative_to(tree):
            raise RefResolutionError(f"{reference.path!r} leads out of the source that names it", ref, "unsafe-path")


def _absolute(text: str, base_dir: Path | None) -> Path:
    path = Path(text).expanduser() if text.startswith("~/") else Path(text)
    return ((base_dir or Path.cwd()) / path).resolve()
