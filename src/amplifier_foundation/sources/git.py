"""Git repositories as sources."""

from pathlib import Path

from amplifier_foundation.paths.resolution import ParsedURI, ResolvedSource

from .git_process import GitCloneTimeoutError
from .handler import SourceHandler, as_source
from .protocol import SourceStatus

__all__ = ["GitCloneTimeoutError", "GitSourceHandler"]


class GitSourceHandler(SourceHandler):
    """`git+<url>[@<ref>][#subdirectory=<path>]`: one tree for each commit, however many references use it."""

    def can_handle(self, parsed: ParsedURI) -> bool:
        return parsed.is_git

    async def get_status(self, parsed: ParsedURI, cache_dir: Path) -> SourceStatus:
        """Compare what the cache has with what the remote has; nothing is changed."""
        return await self.layer(cache_dir).get_status(self.reference(parsed))

    async def update(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource:
        """Ask the remote again and fetch what is new; the earlier tree stays for its users until it is pruned."""
        return as_source(await self.layer(cache_dir).resolve(self.reference(parsed), refresh=True))
