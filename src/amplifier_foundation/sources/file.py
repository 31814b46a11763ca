"""Paths of this machine as sources."""

import os
from functools import lru_cache
from pathlib import Path

from amplifier_foundation.paths.resolution import ParsedURI, ResolvedSource

from .handler import SourceHandler, as_source
from .local import tree_in_cache

_BUNDLE_FILES = ("bundle.md", "bundle.yaml")


class FileSourceHandler(SourceHandler):
    """`/abs`, `./rel`, `file://…`: used in place. The source root is the bundle that a path belongs to."""

    def can_handle(self, parsed: ParsedURI) -> bool:
        return parsed.is_file

    async def resolve(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource:
        layer = self.layer(cache_dir)
        resolved = await layer.resolve(
            self.reference(parsed),
            base_dir=self.base_path,
            find_root=lambda path, directory: _source_root(path, directory, layer.real_cache_dir),
        )
        return as_source(resolved)


def _source_root(path: Path, directory: Path, real_cache_dir: Path) -> Path:
    """Return the tree of a cache entry, else the nearest directory with a bundle file, else the path's own.

    `directory` is that of the path, or the path itself if it is one.
    """
    if tree := tree_in_cache(real_cache_dir, path):
        return tree
    home = _real_home(os.path.expanduser("~"))  # noqa: PTH111 - the text is the key
    for candidate in (directory, *directory.parents):
        if any(os.path.isfile(f"{candidate}/{name}") for name in _BUNDLE_FILES):  # noqa: PTH113 - many of these count
            return candidate
        if candidate == home:
            break
    return directory


@lru_cache(maxsize=8)
def _real_home(home: str) -> Path:
    return Path(os.path.realpath(home))
