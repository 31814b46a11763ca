"""What a resolver of sources and its handlers look like from outside, and what is known of a source's version."""

import re
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol, runtime_checkable

from amplifier_foundation.paths.resolution import ParsedURI, ResolvedSource

from .reference import is_commit


@runtime_checkable
class SourceResolverProtocol(Protocol):
    """Turns a source into a path of this machine."""

    async def resolve(self, uri: str) -> ResolvedSource: ...


@runtime_checkable
class SourceHandlerProtocol(Protocol):
    """Resolves the sources of one kind."""

    def can_handle(self, parsed: ParsedURI) -> bool: ...

    async def resolve(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource: ...


@runtime_checkable
class SourceHandlerWithStatusProtocol(SourceHandlerProtocol, Protocol):
    """A handler that can also say whether there is something newer, and fetch it."""

    async def get_status(self, parsed: ParsedURI, cache_dir: Path) -> "SourceStatus": ...

    async def update(self, parsed: ParsedURI, cache_dir: Path) -> ResolvedSource: ...


@dataclass
class SourceStatus:
    """What the cache has of a source and what its remote has; `has_update` is None if that cannot be known."""

    source_uri: str
    is_cached: bool
    cached_at: datetime | None = None
    cached_ref: str | None = None
    cached_commit: str | None = None
    remote_ref: str | None = None
    remote_commit: str | None = None
    has_update: bool | None = None
    error: str | None = None
    summary: str = ""

    @property
    def is_pinned(self) -> bool:
        """True if the ref is a commit or looks like a version, and so is not expected to move."""
        ref = self.cached_ref or ""
        return is_commit(ref) or (ref.startswith("v") and re.search(r"\d", ref) is not None)
