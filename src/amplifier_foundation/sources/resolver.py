"""The resolver that bundles use: the first handler that knows a source resolves it."""

from pathlib import Path

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.home import get_amplifier_home
from amplifier_foundation.paths.resolution import ResolvedSource, parse_uri

from .file import FileSourceHandler
from .fsspec import FsspecSourceHandler
from .git import GitSourceHandler
from .handler import as_source
from .http import HttpSourceHandler
from .protocol import SourceHandlerProtocol
from .source_layer import Sources
from .zip import ZipSourceHandler


class SimpleSourceResolver:
    """Resolves any source; handlers of one's own come first.

    `allowed_roots` restricts local paths, None leaves them free. `sources` brings a source layer with settings of its
    own, and then decides about cache and roots.
    """

    def __init__(
        self,
        cache_dir: Path | None = None,
        base_path: Path | None = None,
        *,
        allowed_roots: list[Path] | None = None,
        sources: Sources | None = None,
    ) -> None:
        self.cache_dir = sources.cache_dir if sources else cache_dir or get_amplifier_home() / "cache"
        self.base_path = base_path or Path.cwd()
        self._sources = sources or Sources(self.cache_dir, allowed_roots=allowed_roots)
        self._handlers: list[SourceHandlerProtocol] = [
            FileSourceHandler(self.base_path, sources=self._sources),
            GitSourceHandler(sources=self._sources),
            ZipSourceHandler(self.base_path, sources=self._sources),
            HttpSourceHandler(sources=self._sources),
            FsspecSourceHandler(sources=self._sources),
        ]

    @property
    def real_cache_dir(self) -> Path:
        """The cache directory without links."""
        return self._sources.real_cache_dir

    def add_handler(self, handler: SourceHandlerProtocol) -> None:
        """Put a handler before all others."""
        self._handlers.insert(0, handler)

    async def resolve(self, uri: str) -> ResolvedSource:
        """Return where a source is on this machine.

        Raises:
            BundleNotFoundError: no handler knows it, or it is nowhere to be had.
        """
        parsed = parse_uri(_expanded(uri))
        try:
            for handler in self._handlers:
                if handler.can_handle(parsed):
                    return await handler.resolve(parsed, self.cache_dir)
            return as_source(await self._sources.resolve(uri, base_dir=self.base_path))
        except RefResolutionError as error:
            error.ref = uri
            raise


def _expanded(uri: str) -> str:
    return str(Path(uri).expanduser()) if uri.startswith("~/") else uri
