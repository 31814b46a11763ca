"""The collections of a home: registering, listing, syncing, and finding the profiles they hold."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Collection as SizedCollection
from pathlib import Path
from typing import Any

from amplifier_foundation.sources import Sources, parse_reference
from amplifier_foundation.sources.store import now
from amplifier_system.threads import in_thread
from amplifierd.exceptions import CollectionError, FormatUnsupportedError
from amplifierd.identifiers import LOCAL, ProfileId, checked_collection_id
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.builds.lock import DEPENDENCY_MISSING, LockUnusableError, read_lock
from amplifierd.settings import StartupSettings

from .catalogue import Catalogue
from .extraction import SYNC_FAILED
from .models import (
    AddResult,
    Collection,
    CollectionEntry,
    CollectionProfile,
    CollectionStatus,
    Inventory,
    LockedCollection,
    SyncResult,
)
from .own_profiles import OWN_ENTRY
from .registry_file import BUILTIN_SOURCE, already_exists, not_found
from .sync import CollectionSync


class Collections:
    """The collections of one home.

    Ids are checked wherever they enter: an invalid one is a `CollectionError` with code `invalid-identifier`.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        profiles: Profiles,
        paths: Paths,
        sources: Sources,
        startup: StartupSettings,
        *,
        in_use: Callable[[ProfileId], bool],
    ) -> None:
        self._catalogue, self._paths, self._startup = catalogue, paths, startup
        self._registry, self._lock = catalogue.registry, catalogue.lock
        workers = startup.max_parallel_workers
        self._sync = CollectionSync(catalogue, profiles, paths, sources, workers=workers, in_use=in_use)
        self._listing = Listing(paths, catalogue)

    def list(self) -> tuple[Collection, ...]:
        """Return every collection: the shipped one, the registered ones in order, and `local` if it has profiles."""
        self._catalogue.look()
        found = [self._listing.describe(entry) for entry in self._catalogue.entries().values()]
        return tuple(each for each in found if each.identifier != LOCAL or each.profiles)

    def get(self, collection_id: str) -> Collection:
        """Return one collection; `local` is there even while it is empty.

        Raises:
            CollectionError: there is none of that id.
        """
        if checked_collection_id(collection_id) == LOCAL:
            self._catalogue.look()
            return self._listing.describe(OWN_ENTRY)
        return self._listing.describe(self._catalogue.entry(collection_id))

    def warnings(self) -> tuple[Issue, ...]:
        """Return what is wrong with `collections.yaml`, and what was moved here from an older layout."""
        return (*self._registry.read().issues, *self._catalogue.own.moved)

    async def inventory(self, collection_id: str) -> Inventory:
        """Return what a collection holds beside profiles, and what its `pyproject.toml` says.

        Raises:
            CollectionError: there is none of that id.
            RefResolutionError: its files cannot be obtained.
        """
        root = await self._catalogue.root(collection_id)
        return await in_thread(lambda stop: take_inventory(root.path))

    async def add(self, collection_id: str, source: str, *, compile: bool | None = None) -> AddResult:
        """Register a collection, extract its profiles and compile them. A relative source counts from `share/`.

        `compile` defaults to the setting `startup.auto_compile`.
        Profiles that cannot be used, or lack something, are named in the result's `warning`; the collection is
        registered all the same.

        Raises:
            CollectionError: the id is taken, reserved or invalid, or the source not a directory; nothing is registered.
            RefResolutionError: the source cannot be obtained; nothing is registered.
        """
        if checked_collection_id(collection_id) == LOCAL:
            raise _reserved()
        registry = self._registry.read()
        self._registry.check_writable()
        if collection_id in registry.entries or collection_id in registry.rejected:
            raise already_exists(collection_id)
        parse_reference(source)
        entry = CollectionEntry(collection_id, source, installed_at=now())
        result = await self._sync.add(entry, compile=self._compiles(compile))
        state = self._lock.get(collection_id)
        count = len(state.profiles) if state else 0
        noun = "profile" if count == 1 else "profiles"
        problems = [issue for issue in result.errors if issue.severity == "error" or issue.code == DEPENDENCY_MISSING]
        warning = "; ".join(issue.message for issue in problems) if problems else None
        failed = tuple(sorted({issue.location for issue in problems if issue.severity == "error" and issue.location}))
        message = f"Collection '{collection_id}' added with {count} {noun}"
        return AddResult(True, collection_id, count, message, warning, failed)

    async def update(
        self,
        collection_id: str,
        source: str | None = None,
        *,
        enabled: bool | None = None,
        auto_sync: bool | None = None,
    ) -> Collection:
        """Change a registered collection; a new source is looked at now and takes effect at the next sync.

        Raises:
            CollectionError: there is no such entry, or the source is not a directory; nothing is changed.
            RefResolutionError: the source cannot be obtained; nothing is changed.
        """
        self._registry.check_writable()
        self._check_registered(collection_id)
        if source is not None:
            parse_reference(source)
            await self._catalogue.sources.resolve(source)
        given = {"source": source, "enabled": enabled, "auto_sync": auto_sync}
        changes = {key: value for key, value in given.items() if value is not None}
        if changes:
            await in_thread(lambda stop: self._registry.update(collection_id, changes))
        return self.get(collection_id)

    async def remove(self, collection_id: str, force: bool = False) -> None:
        """Take a collection out of the registry, and its profiles out of the home. The cache stays.

        Raises:
            CollectionError: there is no such entry; or a session that has not ended uses one of its profiles and not
                `force`.
        """
        self._registry.check_writable()
        self._check_registered(collection_id)
        await self._sync.remove(collection_id, force=force)

    async def sync(
        self,
        ids: SizedCollection[str] | None = None,
        *,
        refresh: bool = True,
        check: bool = False,
        compile: bool | None = None,
        force_compile: bool = False,
    ) -> dict[str, SyncResult]:
        """Bring collections in step with their sources, and compile what that changed. A single id is fine, too.

        `refresh` asks remotes whether branches moved. `check` only says what would happen: nothing on disk changes.
        `compile` defaults to the setting `startup.auto_compile`. One collection's failure is in its result.

        Raises:
            CollectionError: one of `ids` is not known.
            FormatUnsupportedError: a newer version wrote `collections.lock`.
        """
        ids = (ids,) if isinstance(ids, str) else ids
        for collection_id in ids or ():
            if checked_collection_id(collection_id) != LOCAL and not self._is_known(collection_id):
                raise not_found(collection_id)
        compile = self._compiles(compile)
        return await self._sync.run(ids, refresh=refresh, check=check, compile=compile, force_compile=force_compile)

    async def extract_missing(self) -> dict[str, SyncResult]:
        """Extract, without compiling, the collections that were never synced: on a new home the shipped one.

        Costs a few looks at files when there is nothing to do. One collection's failure is in its result.
        """
        return await self._sync.extract_missing()

    def profile_ids(self) -> tuple[ProfileId, ...]:
        """Return every profile that can be used, collection by collection."""
        self._catalogue.look()
        return self._catalogue.profile_ids()

    def has_profile(self, profile_id: ProfileId | str) -> bool:
        """True if a profile can be used.

        Raises:
            ValueError: it is not the id of a profile.
        """
        self._catalogue.look()
        return self._catalogue.has_profile(profile_id)

    async def remove_orphans(self) -> tuple[ProfileId, ...]:
        """Remove orphaned profiles that no session uses any more, and return them."""
        return await self._sync.remove_orphans()

    def _compiles(self, wanted: bool | None) -> bool:
        return self._startup.auto_compile if wanted is None else wanted

    def _is_known(self, collection_id: str) -> bool:
        return collection_id in self._catalogue.entries() or collection_id in self._registry.read().rejected

    def _check_registered(self, collection_id: str) -> None:
        if checked_collection_id(collection_id) == LOCAL:
            raise _reserved()
        registry = self._registry.read()
        if collection_id in registry.entries or collection_id in registry.rejected:
            return
        if collection_id in self._catalogue.entries():
            message = f"Collection '{collection_id}' is shipped with the distribution and has no entry to change"
            hint = f"an entry named {collection_id} in collections.yaml replaces it"
            raise CollectionError(message, code="builtin-collection", hint=hint)
        raise not_found(collection_id)


def _reserved() -> CollectionError:
    message = f"Collection '{LOCAL}' is reserved for your own profiles"
    return CollectionError(message, code="reserved-collection", hint="choose another id")


logger = logging.getLogger(__name__)

_PROJECT_FILE = "pyproject.toml"
_KEYS = ("name", "version", "description", "author", "capabilities", "requires")


def take_inventory(root: Path) -> Inventory:
    """List the conventional directories of a collection and read its `pyproject.toml`, if there is one."""
    return Inventory(
        metadata=_read_metadata(root),
        agents=_listed(root, (path for path in root.glob("agents/*.md") if path.is_file())),
        context=_listed(root, (path for path in root.glob("context/**/*.md") if path.is_file())),
        modules=_listed(root, (path for path in root.glob("modules/*") if (path / _PROJECT_FILE).is_file())),
        scenario_tools=_listed(root, (path for path in root.glob("scenario-tools/*") if path.is_dir())),
    )


def _listed(root: Path, paths: Iterable[Path]) -> tuple[str, ...]:
    relative = (path.relative_to(root) for path in paths)
    return tuple(sorted(path.as_posix() for path in relative if not any(part.startswith(".") for part in path.parts)))


def _read_metadata(root: Path) -> dict[str, Any]:
    """Return what the project file at the root, else in a package directory below, says about the collection."""
    packages = (path.parent / _PROJECT_FILE for path in sorted(root.glob("*/__init__.py")))
    file = next((path for path in (root / _PROJECT_FILE, *packages) if path.is_file()), None)
    if file is None:
        return {}
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        logger.warning("%s cannot be read and is left out: %s", file, error)
        return {}
    project = _table(data, "project")
    described = {
        **project,
        "author": _author(project.get("authors")),
        "requires": project.get("dependencies"),
        **_table(data, "tool", "amplifier", "collection"),
    }
    return {key: described[key] for key in _KEYS if described.get(key) is not None}


def _table(data: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        data = data.get(key) if isinstance(data, Mapping) else None
    return data if isinstance(data, Mapping) else {}


def _author(authors: Any) -> str | None:
    first = authors[0] if isinstance(authors, list) and authors else None
    return (first.get("name") or first.get("email")) if isinstance(first, Mapping) else None


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
