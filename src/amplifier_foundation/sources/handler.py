"""What the handlers share: each is the source layer for the references of one kind."""

from pathlib import Path

from amplifier_foundation.paths.resolution import ParsedURI, ResolvedSource

from .reference import Reference, reference_from
from .resolved import ResolvedRef
from .source_layer import Sources


class SourceHandler:
    """Resolves with the source layer it was given, or with one of its own for each cache directory.

    Relative paths count from `base_path`, the working directory by default.
    """

    def __init__(self, base_path: Path | None = None, *, sources: Sources | None = None) -> None:
        self.base_path = base_path or Path.cwd()
        self._layers: dict[Path, Sources] = {}
        self._sources = sources

    async def resolve(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource:
        """Return where a source is on this machine.

        Raises:
            BundleNotFoundError: it is nowhere to be had.
        """
        return as_source(await self.layer(cache_dir).resolve(self.reference(parsed), base_dir=self.base_path))

    def reference(self, parsed: ParsedURI) -> Reference:
        return reference_from(parsed)

    def layer(self, cache_dir: Path) -> Sources:
        """Return the source layer for a cache directory."""
        own = self._sources
        if own is not None and (own.cache_dir == cache_dir or own.cache_dir == Path(cache_dir).expanduser().absolute()):
            return own
        cache_dir = Path(cache_dir)
        if cache_dir not in self._layers:
            self._layers[cache_dir] = Sources(cache_dir)
        return self._layers[cache_dir]


def as_source(resolved: ResolvedRef) -> ResolvedSource:
    """Return the older view of a resolved reference."""
    return ResolvedSource(active_path=resolved.path, source_root=resolved.root)
