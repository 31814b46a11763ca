"""Is there something newer than what the cache has of a bundle's sources, and how to get it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.paths.home import get_amplifier_home
from amplifier_foundation.paths.resolution import parse_uri
from amplifier_foundation.sources import GitSourceHandler
from amplifier_foundation.sources.protocol import SourceStatus

if TYPE_CHECKING:
    from amplifier_foundation.bundle import Bundle

__all__ = ["BundleStatus", "SourceStatus", "check_bundle_status", "update_bundle"]

logger = logging.getLogger(__name__)


@dataclass
class BundleStatus:
    """The sources of a bundle and what is known of each."""

    bundle_name: str
    bundle_source: str | None
    sources: list[SourceStatus] = field(default_factory=list)

    @property
    def has_updates(self) -> bool:
        return bool(self.updateable_sources)

    @property
    def updateable_sources(self) -> list[SourceStatus]:
        return [source for source in self.sources if source.has_update is True]

    @property
    def up_to_date_sources(self) -> list[SourceStatus]:
        return [source for source in self.sources if source.has_update is False]

    @property
    def unknown_sources(self) -> list[SourceStatus]:
        return [source for source in self.sources if source.has_update is None]

    @property
    def summary(self) -> str:
        """One line for a person."""
        updates, unknown = len(self.updateable_sources), len(self.unknown_sources)
        if updates:
            return f"{updates} update(s) available ({len(self.sources)} source(s) checked)"
        if unknown:
            return f"Up to date ({unknown} of {len(self.sources)} source(s) cannot be checked)"
        return f"All {len(self.sources)} source(s) up to date"


async def check_bundle_status(bundle: Bundle, cache_dir: Path | None = None) -> BundleStatus:
    """Ask the remotes of a bundle's own source and of its modules' sources; nothing is changed or fetched.

    Agents and included bundles are not looked at.
    """
    cache = cache_dir or get_amplifier_home() / "cache"
    statuses = await asyncio.gather(*(_status_of(source, cache) for source in dict.fromkeys(_sources_of(bundle))))
    return BundleStatus(bundle.name or "unnamed", getattr(bundle, "_source_uri", None), statuses)


async def update_bundle(
    bundle: Bundle, cache_dir: Path | None = None, selective: list[str] | None = None, install_deps: bool = True
) -> Bundle:
    """Fetch what is new of the bundle's git sources, or of those in `selective`, and return the same bundle.

    Modules and context files that lie in a fetched repository are then those of the new commit; texts that were read
    already stay until the bundle is loaded again. With `install_deps` what the fetched folders require is installed
    again. What is running keeps what it runs on.

    Raises:
        BundleNotFoundError: a source cannot be fetched.
        InstallError: dependencies cannot be installed.
    """
    # Installing is not a part of what most importers need.
    from amplifier_foundation.bundle.bundle_file import relocate
    from amplifier_foundation.modules import ModuleActivator
    from amplifier_foundation.modules.activator import forget_failures

    cache = cache_dir or get_amplifier_home() / "cache"
    wanted = selective
    if wanted is None:
        status = await check_bundle_status(bundle, cache)
        wanted = [source.source_uri for source in status.updateable_sources]
    handler, activator = GitSourceHandler(), ModuleActivator(cache)
    forget_failures()
    own = [path for path in (bundle.base_path, *bundle.source_base_paths.values()) if path]
    await activator.note_in_place(dict.fromkeys(own), (entry.module_id for entry in bundle.view().entries()))
    for source in dict.fromkeys(wanted):
        parsed = parse_uri(source)
        if not parsed.is_git:
            logger.debug("%s is not a git source and has no updates", source)
            continue
        known = await handler.resolve(parsed, cache)
        updated = await handler.update(parsed, cache)
        if known.source_root != updated.source_root:
            relocate(bundle, known.source_root, updated.source_root)
        if install_deps and updated.active_path.is_dir():
            await activator.install_dependencies(source, updated.active_path, force=True)
    return bundle


async def _status_of(source: str, cache_dir: Path) -> SourceStatus:
    parsed = parse_uri(source)
    if not parsed.is_git:
        return SourceStatus(source_uri=source, is_cached=True, has_update=None)
    try:
        status = await GitSourceHandler().get_status(parsed, cache_dir)
    except RefResolutionError as error:  # it cannot be a reference; the other sources are still worth a look
        return SourceStatus(source, is_cached=False, error=error.message, summary=f"Error: {error.message}")
    status.source_uri = source  # as written: its fragment says which folder is meant
    return status


def _sources_of(bundle: Bundle) -> Iterator[str]:
    own = getattr(bundle, "_source_uri", None)
    for source in (own, *(slot.source for slot in bundle.view().slots() if not slot.is_by_name)):
        if source and isinstance(source, str):
            yield source
