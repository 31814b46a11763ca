"""Which collections and profiles a home has. What is not in the home yet is extracted; nothing is compiled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path, PurePosixPath

from amplifier_foundation.registry.remote_paths import is_of_this_machine
from amplifier_foundation.sources import Progress, ProgressEvent, Sources, hash_content
from amplifier_foundation.sources.resolved import Phase, report
from amplifier_foundation.sources.store import locked
from amplifier_system.threads import in_thread
from amplifierd.exceptions import CollectionError, ProfileNotFoundError
from amplifierd.identifiers import LOCAL, ProfileId, checked_collection_id
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.builds.profile_catalogue import CollectionRoot
from amplifierd.profiles.documents.document import ReferenceBase
from amplifierd.profiles.documents.literal_secrets import KeepSecret

from .collections_lock import CollectionsLock
from .extraction import Extraction, extract
from .models import CollectionEntry, LockedCollection
from .own_profiles import OWN_ENTRY, OwnProfiles
from .registry_file import BUILTIN_SOURCE, FOUNDATION, RegistryFile, not_found
from .sources import LABELS, CollectionSources, pinned_source

_LOCK_TIMEOUT_S = 1800.0


class Catalogue:
    """The collections of one home and the profiles in them, as of their last sync."""

    def __init__(
        self,
        paths: Paths,
        sources: Sources,
        *,
        shipped: Path | None,
        in_use: Callable[[ProfileId], bool],
        keep: KeepSecret,
        progress: Progress | None = None,
    ) -> None:
        self._paths, self._shipped, self._in_use, self._progress = paths, shipped, in_use, progress
        self._keep = keep
        self.registry = RegistryFile(paths.collections_file, paths.locks)
        self.lock = CollectionsLock(paths.collections_lock, paths.locks)
        self.sources = CollectionSources(paths, sources, shipped)
        self.own = OwnProfiles(paths, self.sources, self.lock, in_use, keep)
        self._shipped_hash: str | None = None

    def entries(self) -> Mapping[str, CollectionEntry]:
        """Return every collection there is by id: the shipped one, the registered ones, and the user's own."""
        registered = self.registry.read()
        found = dict(registered.entries)
        replaced = FOUNDATION in registered.entries or FOUNDATION in registered.rejected
        if not replaced and self._shipped is not None:
            found = {FOUNDATION: CollectionEntry(FOUNDATION, BUILTIN_SOURCE), **found}
        return {**found, LOCAL: OWN_ENTRY} if self.own.are_there() else found

    def entry(self, collection_id: str) -> CollectionEntry:
        """Return one collection's entry.

        Raises:
            CollectionError: there is none of that id.
        """
        entry = self.entries().get(checked_collection_id(collection_id))
        if entry is None:
            raise not_found(collection_id)
        return entry

    def collection_ids(self) -> tuple[str, ...]:
        return tuple(self.entries())

    def shipped_hash(self) -> str | None:
        """Return the hash of the shipped collection, which is read once; None when its directory is not there."""
        if self._shipped_hash is None and self._shipped is not None and self._shipped.is_dir():
            self._shipped_hash = hash_content(self._shipped)
        return self._shipped_hash

    def look(self) -> None:
        """Take in what the user wrote since the last look, unless another is at it."""
        self.own.bring()

    def find_unseen(self) -> frozenset[ProfileId]:
        """Return the user's own profiles whose texts were written, added or removed since the last look."""
        return frozenset(ProfileId(LOCAL, name) for name in self.own.find_unseen())

    def profile_ids(self) -> tuple[ProfileId, ...]:
        """Return every profile that can be used, collection by collection."""
        states = self.lock.read()
        usable = [key for key, entry in self.entries().items() if entry.enabled and key in states]
        return tuple(ProfileId(owner, name) for owner in usable for name in sorted(states[owner].profiles))

    def broken_profiles(self) -> Mapping[ProfileId, tuple[Issue, ...]]:
        """Return the files whose header cannot be read, by the profile each should be, with what is wrong."""
        states = self.lock.read()
        found: dict[ProfileId, tuple[Issue, ...]] = {}
        for owner, entry in self.entries().items():
            state = states.get(owner)
            if state is not None and entry.enabled:
                for name, file in state.broken.items():
                    found[ProfileId(owner, name)] = self._issues_of(state, file)
        return found

    def has_profile(self, profile_id: ProfileId | str) -> bool:
        """True if a profile can be used.

        Raises:
            ValueError: it is not the id of a profile.
        """
        known = ProfileId.parse(profile_id)
        entry, state = self.entries().get(known.collection), self.lock.get(known.collection)
        return entry is not None and entry.enabled and state is not None and known.name in state.profiles

    def is_orphaned(self, profile_id: ProfileId | str) -> bool:
        """True if a profile is gone from its collection, and kept only for the sessions that use it.

        Raises:
            ValueError: it is not the id of a profile.
        """
        known = ProfileId.parse(profile_id)
        state = self.lock.get(known.collection)
        return state is not None and known.name in state.orphaned

    def find_owners(self, name: str) -> tuple[ProfileId, ...]:
        """Return the usable profiles of a bare name, in all collections."""
        return tuple(profile_id for profile_id in self.profile_ids() if profile_id.name == name)

    def reference_base(self, profile_id: ProfileId | str) -> ReferenceBase:
        """Return where a profile's relative references count from.

        Raises:
            ValueError: it is not the id of a profile.
            ProfileNotFoundError: it is in no collection.
        """
        known = ProfileId.parse(profile_id)
        return ReferenceBase(known.collection, PurePosixPath(self._path_of(known)).parent)

    def authored_file(self, profile_id: ProfileId | str) -> Path:
        """Return the file that a person wrote, where it is on this machine, else the extracted copy.

        A file whose header cannot be read is found by the profile that it should be.

        Raises:
            ValueError: it is not the id of a profile.
            ProfileNotFoundError: it is in no collection.
        """
        known = ProfileId.parse(profile_id)
        state = self.lock.get(known.collection)
        path = (state and state.broken.get(known.name)) or self._path_of(known)
        directory = self.sources.directory_of(self.lock.read()[known.collection])
        return directory / path if directory is not None else self._paths.profile_file(known)

    def is_remote(self, collection_id: str) -> bool:
        """True if a collection was fetched from elsewhere, by git, http or as an archive."""
        state = self.lock.get(collection_id)
        return state is not None and self.sources.is_remote(state)

    def is_fetched(self, collection_id: str) -> bool:
        """True for a collection from elsewhere, and for one that is not known any more."""
        state = self.lock.get(collection_id)
        return collection_id not in (FOUNDATION, LOCAL) if state is None else self.sources.is_remote(state)

    def is_near(self, collection_id: str) -> bool:
        """True if a collection comes from this machine, be it from a repository or server of it."""
        state = self.lock.get(collection_id)
        return state is None or state.source in LABELS or is_of_this_machine(state.source)

    async def root(self, collection_id: str) -> CollectionRoot:
        """Return a collection's files as of its last sync; what left the cache is fetched again.

        Raises:
            CollectionError: there is none of that id, or it is disabled.
            RefResolutionError: its files cannot be obtained.
        """
        entry = self.entry(collection_id)
        if not entry.enabled:
            raise CollectionError(f"Collection is disabled: {collection_id}", code="collection-disabled")
        await self.ensure(entry)
        state = self.lock.get(collection_id)
        if state is None:
            raise not_found(collection_id)
        return await self.sources.root(state, entry.source)

    def local_roots(self) -> dict[str, Path]:
        """Return the files of every usable collection that are on this machine; nothing is fetched."""
        states, entries = self.lock.read(), self.entries()
        found = {
            key: self.sources.directory_of(state) or self.sources.fetched_directory_of(state)
            for key, state in states.items()
        }
        return {
            key: path for key, path in found.items() if path is not None and key in entries and entries[key].enabled
        }

    async def ensure_profile(self, profile_id: ProfileId | str) -> None:
        """See to it that a profile's text is in the home: a collection that was never synced, or whose extracted
        profiles were deleted, is extracted, without asking remotes what is new.

        Raises:
            ValueError: it is not the id of a profile.
            RefResolutionError: the collection cannot be obtained.
        """
        known = ProfileId.parse(profile_id)
        if known.collection == LOCAL:
            await asyncio.to_thread(self.own.bring, wait_s=_LOCK_TIMEOUT_S)
        entry = self.entries().get(known.collection)
        if entry is not None and entry.enabled:
            await self.ensure(entry, name=known.name)

    async def ensure(self, entry: CollectionEntry, *, name: str | None = None) -> None:
        """Extract a collection that was never synced, whose extracted profile is gone, or that came with an upgrade.

        Raises:
            CollectionError, RefResolutionError: it cannot be obtained.
        """
        if self.is_ready(entry, name):
            return
        async with self.locked(entry.identifier):
            if self.is_ready(entry, name):
                return
            before = self.lock.get(entry.identifier)
            if before is not None and before.synced_at is not None and before.source != entry.locked_source:
                entry = replace(entry, source=before.source)  # a changed source waits for a sync
            await self.extract(entry, self.known_source(entry), refresh=False)

    async def extract(
        self, entry: CollectionEntry, source: str, *, refresh: bool
    ) -> tuple[Extraction, LockedCollection | None, tuple[str, ...]]:
        """Extract what `source` has for a collection, whose lock the caller holds.

        Returns what was done, the state before, and what is to be said about the source.
        """
        self.report(entry.identifier, "fetching")
        resolved = await self.sources.resolve(source, refresh=refresh)

        def work() -> tuple[Extraction, LockedCollection | None]:
            before = self.lock.get(entry.identifier)
            done = extract(self._paths, entry, resolved, before, self._in_use, self._keep)
            self.lock.record(entry.identifier, done.state)
            return done, before

        done, before = await in_thread(lambda stop: work())
        self.report(entry.identifier, "ready")
        return done, before, resolved.warnings

    def is_ready(self, entry: CollectionEntry, name: str | None = None) -> bool:
        """True if a collection, and the profile of a name, is in the home as far as it can be known."""
        state = self.lock.get(entry.identifier)
        if state is None or state.synced_at is None:
            return False
        if state.source == BUILTIN_SOURCE == entry.source and self.shipped_hash() not in (None, state.content_hash):
            return False
        if name is None or name not in state.profiles:
            return True
        return self._paths.profile_file(ProfileId(entry.identifier, name)).is_file()

    def known_source(self, entry: CollectionEntry) -> str:
        """Return the source to use when remotes are not asked: the last commit synced, unless the source changed."""
        state = self.lock.get(entry.identifier)
        if state is None or not state.synced_at or state.source != entry.locked_source:
            return entry.source
        return pinned_source(state, entry.source)

    def locked(self, collection_id: str) -> AbstractAsyncContextManager[None]:
        """Hold a collection's lock."""
        return locked(
            self._paths.locks / f"collection-{collection_id}.lock",
            ref=collection_id,
            timeout_s=_LOCK_TIMEOUT_S,
            on_wait=lambda: self.report(collection_id, "waiting"),
        )

    def report(self, collection_id: str, phase: Phase, detail: str = "") -> None:
        report(self._progress, ProgressEvent("collection", collection_id, phase, detail=detail))

    def _path_of(self, profile_id: ProfileId) -> str:
        """Return a profile's file in its collection."""
        state = self.lock.get(profile_id.collection)
        if state is None or profile_id.name not in state.profiles:
            raise ProfileNotFoundError(f"Profile not found: {profile_id}")
        return state.profiles[profile_id.name].path

    def _issues_of(self, state: LockedCollection, file: str) -> tuple[Issue, ...]:
        directory = self.sources.directory_of(state)
        found = (issue for issue in state.errors if issue.file is not None and issue.file.as_posix() == file)
        return tuple(replace(issue, file=directory / file if directory else issue.file) for issue in found)
