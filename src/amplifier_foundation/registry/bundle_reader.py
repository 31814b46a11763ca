"""Reading one bundle from where its source was resolved to, and finding the root bundle above it."""

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from amplifier_core.imported_code import retold
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.bundle.bundle_file import read_bundle
from amplifier_foundation.exceptions import BundleError
from amplifier_foundation.paths.discovery import BUNDLE_FILES, find_bundle_file
from amplifier_foundation.paths.resolution import ResolvedSource, parse_uri

from .remote_paths import check_remote_paths, is_of_this_machine

_Stamp = tuple[int, int]
_Head = tuple[str, str]
"""Name and version."""


@dataclass(frozen=True, slots=True)
class RootBundle:
    """The bundle whose directory tree another bundle lies in; `name` is empty when it has none."""

    name: str
    version: str
    directory: Path


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A bundle as its own file has it, before its includes are followed.

    `is_fetched` says that it belongs to a source that was fetched: what it names is looked for in that source only.
    """

    uri: str
    bundle: Bundle
    source: ResolvedSource
    root: RootBundle | None
    is_fetched: bool

    @property
    def place(self) -> str:
        """The bundle's file, for a person: of a source that was fetched, by its reference."""
        file = str(self.bundle._file)
        return retold(file, self.source.active_path, self.uri) if self.is_fetched else file

    @property
    def is_nested(self) -> bool:
        """True if the bundle lies below a root bundle of another name."""
        return self.root is not None and self.root.name != self.bundle.namespace


class BundleReader:
    """Reads bundle files; blocks, so it is called in a worker thread. The head of a root bundle is read only once.

    What lies in `real_cache_dir`, a path without links, was fetched.
    """

    def __init__(self, real_cache_dir: Path) -> None:
        self._real_cache_dir = real_cache_dir
        self._heads: dict[Path, tuple[_Stamp, _Head]] = {}
        self._lock = threading.Lock()

    def read(self, uri: str, source: ResolvedSource) -> Reading:
        """Read the bundle of a resolved source, with the namespaces that its place in a tree gives it.

        Raises:
            BundleError: it, or the root bundle above it, is unusable.
        """
        is_fetched = self._is_fetched(uri, source.active_path)
        try:
            bundle = read_bundle(source.active_path, reference=uri if is_fetched else None)
        except BundleError as error:
            if is_fetched:
                found = (retold(text, source.active_path, uri) for text in (error.message, error.hint))
                error.reword(next(found), hint=next(found))
            raise
        file = bundle._file
        assert file is not None
        if file.name in BUNDLE_FILES:
            self._heads[file] = _stamp(file), (bundle.namespace, bundle.version)
        root = self._find_root(file.parent, source.source_root)
        if root:
            _add_namespaces(bundle, root)
        if self._is_in_cache(file):
            is_local = is_of_this_machine(uri) or parse_uri(uri).is_file
            check_remote_paths(bundle, source.source_root, from_elsewhere=is_fetched and not is_local)
        return Reading(uri, bundle, source, root, is_fetched=is_fetched)

    def _is_fetched(self, uri: str, file: Path) -> bool:
        in_place = parse_uri(uri).is_file
        return not in_place or self._is_in_cache(file)

    def _is_in_cache(self, file: Path) -> bool:
        return Path(os.path.realpath(file)).is_relative_to(self._real_cache_dir)

    def _find_root(self, directory: Path, source_root: Path) -> RootBundle | None:
        if directory == source_root:
            return None
        for place in directory.parents:
            if not place.is_relative_to(source_root):
                return None
            if file := find_bundle_file(place):
                return RootBundle(*self._head_of(file), place)
        return None

    def _head_of(self, file: Path) -> _Head:
        with self._lock:
            stamp = _stamp(file)
            known = self._heads.get(file)
            if known is None or known[0] != stamp:
                root = read_bundle(file)
                known = self._heads[file] = stamp, (root.namespace, root.version)
            return known[1]


def _stamp(file: Path) -> _Stamp:
    info = file.stat()
    return info.st_mtime_ns, info.st_size


def _add_namespaces(bundle: Bundle, root: RootBundle) -> None:
    if root.name:
        bundle.source_base_paths[root.name] = root.directory
    if bundle.namespace and bundle.namespace != root.name and bundle.base_path:
        own = (bundle.base_path / bundle.namespace_root).resolve() if bundle.namespace_root else bundle.base_path
        bundle.source_base_paths[bundle.namespace] = own
