"""References to paths of this machine: never cached, used in place."""

import importlib.metadata
import importlib.util
import os
import stat
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.resolution import path_in_fragment

from .cache_context import CacheContext, find_subpath
from .reference import FileReference, NameReference, checked_subpath
from .resolved import ResolvedRef
from .store import WorkerBatches, now

FindRoot = Callable[[Path, Path], Path]
"""Returns the root for a path without subpath and its directory; called off the event loop."""

_ENTRY_DEPTH = {"git": 2, "fsspec": 3}  # git/<commit>, fsspec/<hash>/<name>


@dataclass(frozen=True, slots=True)
class LocalPath:
    """A path without links and dots, what was written behind a `#`, and what is there: None when nothing is."""

    path: Path
    subpath: str | None
    mode: int | None

    @property
    def directory(self) -> Path:
        return self.path if self.mode is not None and stat.S_ISDIR(self.mode) else self.path.parent


def find_local(reference: FileReference, base_dir: Path | None) -> LocalPath:
    """Return the first reading of a path that exists, else the likeliest one.

    A path counts literally; if there is none by that name, a `#` in it starts a fragment, and then `%20` and its like
    are decoded.
    """
    for text, subpath in _readings(reference):
        try:
            path = _real(text, base_dir)
            return LocalPath(Path(path), subpath, os.stat(path).st_mode)  # noqa: PTH116 - thirty of these count
        except (OSError, ValueError):  # nothing there, or a name that no file can have
            continue
    text, subpath = list(_written(reference))[-1]
    return LocalPath(Path(_real(text, base_dir)), subpath, None)


def tree_in_cache(real_cache_dir: Path, real_path: Path) -> Path | None:
    """Return the tree of the cache entry that a path belongs to, None for a path outside the cache.

    Both are paths without links.
    """
    if not real_path.is_relative_to(real_cache_dir):
        return None
    parts = real_path.relative_to(real_cache_dir).parts
    depth = _ENTRY_DEPTH.get(parts[0], 0) if parts else 0
    return real_cache_dir.joinpath(*parts[:depth]) if 0 < depth <= len(parts) else None


class LocalSource:
    """Resolves paths of this machine."""

    def __init__(self, context: CacheContext) -> None:
        self._context = context
        self._workers = WorkerBatches[ResolvedRef]()

    async def resolve(
        self, reference: FileReference, ref: str, *, base_dir: Path | None, find_root: FindRoot | None = None
    ) -> ResolvedRef:
        """Return the path; nothing is read but whether it is there, and what `find_root` looks for."""
        return await self._workers.run(lambda: self._resolve(reference, ref, base_dir, find_root))

    def _resolve(
        self, reference: FileReference, ref: str, base_dir: Path | None, find_root: FindRoot | None
    ) -> ResolvedRef:
        found = find_local(reference, base_dir)
        self._context.check_allowed(found.path, ref)
        self._check_stays_in_entry(reference, found.path, ref, base_dir)
        if found.mode is None:
            message = f"File not found: {found.path} does not exist"
            raise RefResolutionError(message, ref, "not-found", hint="correct the path where it is written")
        path, root, subpath = found.path, found.directory, checked_subpath(found.subpath, ref)
        if subpath is not None:
            path = find_subpath(found.path, subpath, ref)
            self._context.check_allowed(path, ref)
        elif find_root is not None:
            root = find_root(path, root)
        return ResolvedRef(
            ref=ref,
            kind="local",
            path=path,
            root=root,
            resolved_at=now(),
            url=found.path.as_uri(),
            subpath=subpath,
        )

    def _check_stays_in_entry(self, reference: FileReference, path: Path, ref: str, base_dir: Path | None) -> None:
        """Refuse a relative path in fetched content that leads out of that content."""
        if base_dir is None or reference.path.startswith(("/", "~/")):
            return
        tree = tree_in_cache(self._context.real_cache_dir, Path(os.path.realpath(base_dir)))
        if tree is not None and not path.is_relative_to(tree):
            raise RefResolutionError(f"{reference.path!r} leads out of the source that names it", ref, "unsafe-path")


def _readings(reference: FileReference) -> Iterator[tuple[str, str | None]]:
    """Yield what a reference can mean, path and subpath, the likeliest first."""
    yield from _written(reference)
    for text, subpath in _written(reference):
        if "%" in text:
            yield unquote(text), subpath


def _written(reference: FileReference) -> Iterator[tuple[str, str | None]]:
    yield reference.path, reference.subpath
    path, mark, fragment = reference.path.partition("#")
    if mark and path:
        yield path, path_in_fragment(fragment)


def _real(text: str, base_dir: Path | None) -> str:
    path = os.path.expanduser(text) if text.startswith("~/") else text  # noqa: PTH111 - thirty of these count
    return os.path.realpath(os.path.join(base_dir or Path.cwd(), path))  # noqa: PTH118 - thirty of these count


# Installed packages, by the name they are imported or distributed under.


def find_package(name: str) -> Path | None:
    """Return the directory of an installed package; nothing is imported. Namespace packages have none."""
    return _directory_of(name.replace("-", "_")) or _directory_of_distribution(name)


_HOW_TO_NAME = "correct the name, or write an address: git+https://host/org/repo@v1"


def resolve_name(reference: NameReference, ref: str, *, base_dir: Path | None) -> ResolvedRef:
    """Return the directory of an installed package, or what the subpath names in it.

    Raises:
        RefResolutionError: there is no such package. A name is never tried as a path.
    """
    package = find_package(reference.name)
    if package is None:
        message = f"No handler for URI: {ref}: neither a registered bundle nor an installed package has that name"
        beside = (base_dir or Path.cwd()) / str(reference)
        hint = f"for the path write './{reference}'" if beside.exists() else _HOW_TO_NAME
        raise RefResolutionError(message, ref, "not-found", hint=hint)
    path = find_subpath(package, reference.subpath, ref)
    return ResolvedRef(
        ref=ref,
        kind="installed",
        path=path,
        root=package,
        resolved_at=now(),
        subpath=reference.subpath,
        from_cache=True,
    )


def _directory_of(import_name: str) -> Path | None:
    if not import_name.isidentifier() or import_name in sys.stdlib_module_names:
        return None
    try:
        spec = importlib.util.find_spec(import_name)
    except (ImportError, ValueError):
        return None
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return None
    return Path(spec.origin).resolve().parent


def _directory_of_distribution(name: str) -> Path | None:
    """Return the package that a distribution of another name brings: of several the first that is public."""
    try:
        distribution = importlib.metadata.distribution(name)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    listed = (distribution.read_text("top_level.txt") or "").split()
    tops = listed or sorted({file.parts[0] for file in distribution.files or () if file.name == "__init__.py"})
    public_first = sorted(tops, key=lambda top: top.startswith("_"))
    return next((directory for top in public_first if (directory := _directory_of(top)) is not None), None)
