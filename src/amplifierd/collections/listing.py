"""Collections as they are listed: the entry, the last sync, and what the lock of each profile tells."""

from __future__ import annotations

from collections.abc import Iterator

from amplifierd.builds.lock import LockUnusableError, read_lock
from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths

from .builtin import BUILTIN_SOURCE
from .catalogue import Catalogue
from .extraction import SYNC_FAILED
from .models import Collection, CollectionEntry, CollectionProfile, CollectionStatus, LockedCollection


class Listing:
    """Describes the collections of one home."""

    def __init__(self, paths: Paths, catalogue: Catalogue) -> None:
        self._paths, self._catalogue = paths, catalogue

    def describe(self, entry: CollectionEntry) -> Collection:
        state = self._catalogue.lock.get(entry.identifier) or LockedCollection(entry.locked_source)
        is_shipped = entry.source == BUILTIN_SOURCE
        return Collection(
            identifier=entry.identifier,
            source=entry.locked_source,
            status=_status(entry, state),
            enabled=entry.enabled,
            auto_sync=entry.auto_sync,
            commit=state.commit,
            content_hash=self._catalogue.shipped_hash() if is_shipped else state.content_hash,
            installed_at=entry.installed_at,
            synced_at=state.synced_at,
            profiles=tuple(self._describe_profiles(entry.identifier, state)),
            warnings=(*self._catalogue.registry.read().issues_of(entry.identifier), *state.errors),
        )

    def _describe_profiles(self, collection_id: str, state: LockedCollection) -> Iterator[CollectionProfile]:
        for name in sorted(state.profiles):
            profile = state.profiles[name]
            status = self._profile_status(ProfileId(collection_id, name), profile.hash)
            yield CollectionProfile(name, profile.version, profile.path, status, state.synced_at)
        for name in state.orphaned:
            yield CollectionProfile(name, "", "", "orphaned")
        for name in sorted(state.broken):
            yield CollectionProfile(name, "", state.broken[name], "invalid")

    def _profile_status(self, profile_id: ProfileId, text_hash: str) -> str:
        """Return what a profile's lock alone can tell; `home.profiles.status` looks further."""
        try:
            lock = read_lock(self._paths.profile_dir(profile_id))
        except LockUnusableError:
            return "missing"
        except FormatUnsupportedError:
            return "stale"
        if lock.profile_hash != text_hash:
            return "stale"
        return "degraded" if lock.degraded else "fresh"


def _status(entry: CollectionEntry, state: LockedCollection) -> CollectionStatus:
    if not entry.enabled:
        return "disabled"
    if any(issue.code == SYNC_FAILED for issue in state.errors):
        return "error"
    return "synced" if state.synced_at else "unsynced"
