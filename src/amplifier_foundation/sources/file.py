"""Paths of this machine as sources."""

from pathlib import Path

from amplifier_foundation.paths.resolution import ParsedURI, ResolvedSource

from .handler import SourceHandler
from .local import tree_in_cache

_BUNDLE_FILES = ("bundle.md", "bundle.yaml")


class FileSourceHandler(SourceHandler):
    """`/abs`, `./rel`, `file://…`: used in place. The source root is the bundle that a path belongs to."""

    def can_handle(self, parsed: ParsedURI) -> bool:
        return parsed.is_file

    async def resolve(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource:
        resolved = await self.layer(cache_dir).resolve(self.reference(parsed), base_dir=self.base_path)
        if resolved.subpath is not None:
            return ResolvedSource(resolved.path, resolved.root)
        return ResolvedSource(resolved.path, _source_root(resolved.path, Path(cache_dir)))


def _source_root(path: Path, cache_dir: Path) -> Path:
    """Return the tree of a cache entry, else the nearest directory with a bundle file, else the path's own."""
    if tree := tree_in_cache(cache_dir, path):
        return tree
    directory = path if path.is_dir() else path.parent
    home = Path.home().resolve()
    for candidate in (directory, *directory.parents):
        if any((candidate / name).is_file() for name in _BUNDLE_FILES):
            return candidate
        if candidate == home:
            break
    return directory
