"""Git repositories as sources."""

import tempfile
from pathlib import Path

from amplifier_foundation.paths.resolution import ParsedURI, ResolvedSource, parse_uri
from amplifier_foundation.sources.repositories.git_process import GitCloneTimeoutError

from .handler import SourceHandler, as_source
from .protocol import SourceStatus
from .reference import GitReference, is_commit

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

    def _get_cache_path(self, parsed: ParsedURI, cache_dir: Path) -> Path:
        """Return where the cache has the tree of a source, or would; applications that update ask."""
        reference = self.reference(parsed)
        assert isinstance(reference, GitReference)
        return self.layer(cache_dir).cached_tree(reference)

    def _get_local_commit(self, cache_path: Path) -> str | None:
        """Return the commit of a tree in the cache, None when there is none."""
        return cache_path.name if is_commit(cache_path.name) and cache_path.is_dir() else None

    async def _get_remote_commit(self, git_url: str, ref: str) -> str | None:
        """Return the commit that a ref of a remote points to, None when that cannot be known."""
        parsed = parse_uri(f"{git_url if git_url.startswith('git+') else f'git+{git_url}'}@{ref}")
        with tempfile.TemporaryDirectory() as nothing_cached:
            return (await self.get_status(parsed, Path(nothing_cached))).remote_commit
