"""Collections as they are listed: the entry, the last sync, and what the lock of each profile tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from amplifierd.builds.lock import LockUnusableError, read_lock
from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.identifiers import LOCAL, ProfileId, is_collection_or_profile_name

from .builtin import BUILTIN_SOURCE
from .collections_lock import CollectionsLock
from .discovery import read_local_profile
from .extraction import SYNC_FAILED
from .models import Collection, CollectionEntry, CollectionProfile, CollectionStatus, LockedCollection
from .registry_file import RegistryFile

if TYPE_CHECKING:
    from amplifierd.home import Home


class Listing:
    """Describes the collections of one home; `shipped_hash` gives the hash of the shipped one."""

    def __init__(
        self, home: Home, registry: RegistryFile, lock: CollectionsLock, *, shipped_hash: Callable[[], str | None]
    ) -> None:
        self._home = home
        self._registry = registry
        self._lock = lock
        self._shipped_hash = shipped_hash

    def describe(self, entry: CollectionEntry) -> Collection:
        state = self._lock.get(entry.identifier) or LockedCollection(entry.source)
        is_shipped = entry.source == BUILTIN_SOURCE
        return Collection(
            identifier=entry.identifier,
            source=entry.source,
            status=_status(entry, state),
            enabled=entry.enabled,
            auto_sync=entry.auto_sync,
            commit=state.commit,
            content_hash=self._shipped_hash() if is_shipped else state.content_hash,
            installed_at=entry.installed_at,
            synced_at=state.synced_at,
            profiles=tuple(self._describe_profiles(entry.identifier, state)),
            warnings=(*self._registry.read().issues_of(entry.identifier), *state.errors),
        )

    def describe_local(self) -> Collection:
        """Describe the user's own profiles."""
        profiles = tuple(self._describe_own(ProfileId(LOCAL, name)) for name in self.local_names())
        return Collection(LOCAL, f"profiles/{LOCAL}", "synced", profiles=profiles)

    def local_names(self) -> tuple[str, ...]:
        """Return the names of the user's own profiles."""
        files = (self._home.paths.profiles / LOCAL).glob("*/profile.md")
        names = (file.parent.name for file in files if file.is_file())
        return tuple(sorted(name for name in names if is_collection_or_profile_name(name)))

    def _describe_profiles(self, collection_id: str, state: LockedCollection) -> Iterator[CollectionProfile]:
        for name in sorted(state.profiles):
            profile = state.profiles[name]
            status = self._profile_status(ProfileId(collection_id, name), profile.hash)
            yield CollectionProfile(name, profile.version, profile.path, status, state.synced_at)
        for name in state.orphaned:
            yield CollectionProfile(name, "", "", "orphaned")

    def _describe_own(self, profile_id: ProfileId) -> CollectionProfile:
        document = read_local_profile(self._home.paths.profile_file(profile_id), profile_id)
        version = str(document.metadata.get("version") or "")
        status = self._profile_status(profile_id, document.profile_hash)
        return CollectionProfile(profile_id.name, version, f"{profile_id.name}/profile.md", status)

    def _profile_status(self, profile_id: ProfileId, text_hash: str) -> str:
        """Return what a profile's lock alone can tell; `home.profiles.status` looks further."""
        try:
            lock = read_lock(self._home.paths.profile_dir(profile_id))
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
