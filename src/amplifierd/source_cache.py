"""The cache of a home's sources: what is in it, and what may go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_foundation.sources import CachedSource, PruneResult, list_cached, prune
from amplifier_system.threads import in_thread
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.collections.home_collections import Collections

from .settings import CacheSettings

if TYPE_CHECKING:
    from amplifier_foundation.registry import BundleRegistry


async def measure_cache(directory: Path) -> int:
    """Return how many bytes the entries of a cache have."""
    return await in_thread(lambda stop: sum(each.bytes for each in list_cached(directory)))


class SourceCache:
    """The cache of a home; what its collections, compiled profiles and registered bundles refer to is in use."""

    def __init__(
        self,
        directory: Path,
        settings: CacheSettings,
        collections: Collections,
        profiles: Profiles,
        bundles: BundleRegistry,
    ) -> None:
        self._directory, self._settings = directory, settings
        self._collections, self._profiles, self._bundles = collections, profiles, bundles

    async def list(self) -> tuple[tuple[CachedSource, bool], ...]:
        """Return the entries, each with whether it is in use."""

        def look(stop: object) -> tuple[tuple[CachedSource, bool], ...]:
            used = {*self._in_use()}
            return tuple((each, _is_used(each, used)) for each in list_cached(self._directory))

        return await in_thread(look)

    async def prune(self, *, keep_days: float | None = None, dry_run: bool = False) -> PruneResult:
        """Remove what is not in use and has not been needed for some days, by default `cache.keep_days`.

        Of what is left, the oldest goes until the rest fits into `cache.max_bytes`.
        """
        days = self._settings.keep_days if keep_days is None else keep_days
        most = self._settings.max_bytes
        return await in_thread(
            lambda stop: prune(
                self._directory, in_use=tuple(self._in_use()), keep_days=days, max_bytes=most, dry_run=dry_run
            )
        )

    def _in_use(self) -> Iterator[str]:
        """Yield commits and paths that something in the home refers to."""
        for collection in self._collections.list():
            if collection.commit:
                yield collection.commit
        for profile_id in self._collections.profile_ids():
            lock = self._profiles.read_lock(profile_id)
            if lock is not None:
                yield from _commits(lock.data["resources"])
        for state in self._bundles.get_state().values():
            if state.local_path:
                yield state.local_path


def _commits(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(commit := value.get("commit"), str):
            yield commit
        for inner in value.values():
            yield from _commits(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _commits(inner)


def _is_used(entry: CachedSource, used: set[str]) -> bool:
    real = entry.path.resolve()
    places = (Path(each).resolve() for each in used if "/" in each)
    return entry.path.name in used or any(place.is_relative_to(real) for place in places)
