"""The cache of a home's sources: what is in it, and what may go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from amplifier_foundation.sources import CachedSource, PruneResult, list_cached, prune
from amplifier_system.threads import in_thread

from .home import Home


async def list_cache(home: Home) -> tuple[tuple[CachedSource, bool], ...]:
    """Return the entries of a home's cache, each with whether something of the home refers to it."""

    def look(stop: object) -> tuple[tuple[CachedSource, bool], ...]:
        used = {*_in_use(home)}
        return tuple((each, _is_used(each, used)) for each in list_cached(home.paths.cache))

    return await in_thread(look)


async def prune_cache(home: Home, *, keep_days: float | None = None, dry_run: bool = False) -> PruneResult:
    """Remove what nothing in the home refers to and was not used for some days, by default `cache.keep_days`.

    Of what is left, the oldest goes until the rest fits into `cache.max_bytes`.
    """
    days = home.settings.cache.keep_days if keep_days is None else keep_days
    most = home.settings.cache.max_bytes
    return await in_thread(
        lambda stop: prune(
            home.paths.cache, in_use=tuple(_in_use(home)), keep_days=days, max_bytes=most, dry_run=dry_run
        )
    )


def _in_use(home: Home) -> Iterator[str]:
    """Yield commits and paths that collections, compiled profiles and registered bundles refer to."""
    for collection in home.collections.list():
        if collection.commit:
            yield collection.commit
    for profile_id in home.collections.profile_ids():
        lock = home.profiles.read_lock(profile_id)
        if lock is not None:
            yield from _commits(lock.data["resources"])
    for state in home.bundles.get_state().values():
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
