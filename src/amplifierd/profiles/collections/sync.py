"""Bringing collections in step with their sources, several at a time, each under its own lock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from amplifier_core.exceptions import AmplifierError
from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import FileReference, GitReference, NameReference, Sources, parse_reference
from amplifier_system.threads import in_thread
from amplifierd.exceptions import CollectionError, FormatUnsupportedError
from amplifierd.identifiers import LOCAL, ProfileId
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.builds.lock import LockUnusableError, read_lock
from amplifierd.profiles.builds.publication import remove_profile

from .catalogue import Catalogue
from .extraction import SYNC_FAILED, Extraction, failed, remove_all
from .models import CollectionEntry, LockedCollection, ProfileOutcome, SyncResult, SyncStatus
from .recompiling import Outcomes, find_descendants, is_built, recompile
from .sources import LABELS, CollectionSources

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Step:
    """One collection after its extraction: the result so far, and by name what is to be compiled."""

    result: SyncResult
    changed: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


class CollectionSync:
    """Extracts collections and compiles what that changed, `workers` of them at a time."""

    def __init__(
        self,
        catalogue: Catalogue,
        profiles: Profiles,
        paths: Paths,
        sources: Sources,
        *,
        workers: int,
        in_use: Callable[[ProfileId], bool],
    ) -> None:
        self._catalogue, self._profiles, self._paths, self._sources = catalogue, profiles, paths, sources
        self._registry, self._lock = catalogue.registry, catalogue.lock
        self._workers, self._in_use = workers, in_use

    async def run(
        self, ids: Collection[str] | None, *, refresh: bool, check: bool, compile: bool, force_compile: bool
    ) -> dict[str, SyncResult]:
        """Sync the collections of these ids, all by default."""
        self._lock.read()  # a file of a newer format stops here, before anything is fetched
        await in_thread(lambda stop: self._catalogue.own.bring())
        slots = asyncio.Semaphore(self._workers)

        async def step(collection_id: str) -> _Step:
            async with slots:
                return await self._step(collection_id, refresh=refresh, check=check, explicit=ids is not None)

        wanted = list(dict.fromkeys(self._all_ids() if ids is None else ids))
        steps = dict(zip(wanted, await asyncio.gather(*map(step, wanted)), strict=True))
        if check or not compile:
            return {collection_id: step.result for collection_id, step in steps.items()}
        outcomes = await self._recompile(steps, refresh=refresh, force=force_compile)
        return {collection_id: _compiled(collection_id, step, outcomes) for collection_id, step in steps.items()}

    async def add(self, entry: CollectionEntry, *, compile: bool) -> SyncResult:
        """Resolve a new collection, register it, extract its profiles and compile them.

        Raises:
            CollectionError, RefResolutionError: nothing is registered.
        """
        async with self._catalogue.locked(entry.identifier):
            await self._catalogue.sources.resolve(entry.source, refresh=True)
            await in_thread(lambda stop: self._registry.add(entry))
            step = await self._extract(entry, entry.source, refresh=False)
        if not compile:
            return step.result
        outcomes = await self._recompile({entry.identifier: step}, refresh=False, force=False)
        return _compiled(entry.identifier, step, outcomes)

    async def remove(self, collection_id: str, *, force: bool) -> None:
        """Take a collection's entry out, then its profiles.

        Raises:
            CollectionError: a session uses one of its profiles, and not `force`.
        """
        async with self._catalogue.locked(collection_id):
            state = self._lock.get(collection_id)
            names = (*state.profiles, *state.orphaned) if state else ()
            users = [name for name in sorted(names) if self._in_use(ProfileId(collection_id, name))]
            if users and not force:
                message = f"Collection '{collection_id}' is in use: sessions use {', '.join(users)}"
                raise CollectionError(message, code="collection-in-use", hint="end them, or force the removal")
            await in_thread(lambda stop: self._registry.remove(collection_id))
            await in_thread(lambda stop: self._forget(collection_id, keep_used=False))

    async def extract_missing(self) -> dict[str, SyncResult]:
        """Extract the enabled collections that are not in the home yet, or came with an upgrade."""
        self._lock.read()
        missing = [
            key
            for key, entry in self._catalogue.entries().items()
            if entry.enabled and not self._catalogue.is_ready(entry, None)
        ]
        return await self.run(missing, refresh=False, check=False, compile=False, force_compile=False)

    async def remove_orphans(self) -> tuple[ProfileId, ...]:
        """Remove the orphaned profiles that no session uses any more."""
        gone: list[ProfileId] = []
        for collection_id, state in self._lock.read().items():
            if any(not self._in_use(ProfileId(collection_id, name)) for name in state.orphaned):
                async with self._catalogue.locked(collection_id):
                    gone += await asyncio.to_thread(self._remove_orphans_of, collection_id)
        return tuple(gone)

    async def _step(self, collection_id: str, *, refresh: bool, check: bool, explicit: bool) -> _Step:
        entry = self._catalogue.entries().get(collection_id)
        if entry is None:
            return await self._step_without_entry(collection_id, check=check)
        if not entry.enabled or not (explicit or entry.auto_sync):
            return self._skipped(collection_id)
        before = self._lock.get(collection_id)
        commit = before.commit if before else None
        try:
            if check:
                return _Step(await check_collection(self._catalogue.sources, entry, before, refresh=refresh))
            async with self._catalogue.locked(collection_id):
                current = self._catalogue.entries().get(collection_id)
                if current is None:
                    return self._skipped(collection_id)  # it was removed while this one waited
                source = current.source if refresh else self._catalogue.known_source(current)
                return await self._extract(current, source, refresh=refresh)
        except (AmplifierError, OSError) as error:
            message, fix = (error.message, error.hint) if isinstance(error, AmplifierError) else (str(error), "")
        except Exception as error:  # sources are foreign content, fetched by foreign backends
            logger.exception("collection %r cannot be synced", collection_id)
            message, fix = f"{type(error).__name__}: {error}", ""
        self._catalogue.report(collection_id, "failed", message)
        issue = Issue(SYNC_FAILED, message, fix=fix or "correct the collection's source, then sync again")
        if not check:
            await self._record_failure(entry, issue)
        return _Step(SyncResult("error", commit, commit, errors=(issue,)))

    async def _step_without_entry(self, collection_id: str, *, check: bool) -> _Step:
        """Treat an id that only the lock knows: its entry was taken out by hand."""
        state = self._lock.get(collection_id)
        registry = self._registry.read()
        if state is None or collection_id in registry.rejected or not registry.is_valid:
            return self._skipped(collection_id)
        removed = frozenset(state.profiles)
        if not check:
            async with self._catalogue.locked(collection_id):
                removed = await in_thread(lambda stop: self._forget(collection_id, keep_used=True))
        outcomes: dict[str, ProfileOutcome] = dict.fromkeys(sorted(removed), "removed")
        return _Step(SyncResult("updated", state.commit, None, outcomes), removed=removed)

    async def _extract(self, entry: CollectionEntry, source: str, *, refresh: bool) -> _Step:
        """Extract what `source` has for a collection; the caller holds its lock."""
        done, before, warnings = await self._catalogue.extract(entry, source, refresh=refresh)
        return _Step(_result(done, before, warnings), done.changed, done.touched, done.removed)

    async def _recompile(self, steps: Mapping[str, _Step], *, refresh: bool, force: bool) -> Outcomes:
        """Compile what the steps changed, all that inherits from it, what has no build yet, and, with `refresh`, what
        remotes have something newer for; the user's own profiles are asked for along with the others."""
        parents = await in_thread(lambda stop: self._parents())
        changed = [
            ProfileId(owner, name)
            for owner, step in steps.items()
            for name in (*step.changed, *step.touched, *step.removed)
        ]
        synced = {key for key, step in steps.items() if step.result.status not in ("skipped", "error")}
        own = [profile_id for profile_id in parents if profile_id.collection in synced]
        users = [profile_id for profile_id in parents if profile_id.collection == LOCAL]
        asked = dict.fromkeys((*own, *users))
        moved = await find_moved(self._paths, self._sources, asked) if refresh and not force else set()
        unbuilt = {profile_id for profile_id in own if force or not is_built(self._paths, profile_id)}
        near = users if LOCAL in synced else ()  # what lies beside them may have changed, whatever their texts say
        wanted = {*changed, *find_descendants(changed, parents), *moved, *unbuilt, *near} & parents.keys()
        return await recompile(
            self._profiles, self._paths, wanted, parents=parents, workers=self._workers, moved=moved, force=force
        )

    def _parents(self) -> dict[ProfileId, str | None]:
        """Return every usable profile with what it extends."""
        states = self._lock.read()
        known = self._catalogue.profile_ids()
        return {each: states[each.collection].profiles[each.name].extends for each in known}

    def _all_ids(self) -> list[str]:
        """Return the ids in the registry, and those whose entry was taken out of it since their last sync."""
        registry = self._registry.read()
        forgotten = sorted(self._lock.read()) if registry.is_valid else []
        return [*self._catalogue.entries(), *sorted(registry.rejected), *forgotten]

    def _forget(self, collection_id: str, *, keep_used: bool) -> frozenset[str]:
        state = self._lock.get(collection_id)
        if state is not None and state.synced_at is None:  # never fetched: what is there is not ours
            self._lock.record(collection_id, None)
            return frozenset()
        orphaned, removed = remove_all(self._paths, collection_id, self._in_use if keep_used else _never)
        keep = replace(state, profiles={}, orphaned=orphaned) if state is not None and orphaned else None
        self._lock.record(collection_id, keep)
        return removed

    def _remove_orphans_of(self, collection_id: str) -> list[ProfileId]:
        state = self._lock.get(collection_id)
        if state is None:
            return []
        gone = [name for name in state.orphaned if not self._in_use(ProfileId(collection_id, name))]
        for name in gone:
            remove_profile(self._paths, ProfileId(collection_id, name))
        left = tuple(name for name in state.orphaned if name not in gone)
        self._lock.record(collection_id, replace(state, orphaned=left))
        return [ProfileId(collection_id, name) for name in gone]

    async def _record_failure(self, entry: CollectionEntry, issue: Issue) -> None:
        try:
            before = self._lock.get(entry.identifier)
            state = failed(entry, before, issue)
            await in_thread(lambda stop: self._lock.record(entry.identifier, state))
        except (AmplifierError, OSError) as error:
            logger.warning("the failure of %s cannot be recorded: %s", entry.identifier, error)

    def _skipped(self, collection_id: str) -> _Step:
        state = self._lock.get(collection_id)
        commit = state.commit if state else None
        return _Step(SyncResult("skipped", commit, commit, errors=self._registry.read().issues_of(collection_id)))


def _never(profile_id: ProfileId) -> bool:
    return False


def _result(done: Extraction, before: LockedCollection | None, warnings: tuple[str, ...]) -> SyncResult:
    status: SyncStatus = "synced" if done.is_new else "updated" if done.has_changed else "unchanged"
    outcomes: dict[str, ProfileOutcome] = dict.fromkeys(sorted(done.state.profiles), "unchanged")
    outcomes.update(dict.fromkeys(sorted(done.changed), "extracted"))
    outcomes.update(dict.fromkeys(sorted(done.removed), "removed"))
    return SyncResult(
        status, before.commit if before else None, done.state.commit, outcomes, done.state.errors, warnings
    )


def _compiled(collection_id: str, step: _Step, outcomes: Outcomes) -> SyncResult:
    """Return a collection's result with what came of compiling its profiles."""
    own = {key.name: outcome for key, outcome in outcomes.items() if key.collection == collection_id}
    profiles = {**step.result.profiles, **{name: outcome for name, (outcome, _) in own.items()}}
    failures = tuple(issue for _, issue in own.values() if issue is not None)
    return replace(step.result, profiles=profiles, errors=(*step.result.errors, *failures))


async def check_collection(
    sources: CollectionSources, entry: CollectionEntry, state: LockedCollection | None, *, refresh: bool
) -> SyncResult:
    """Compare a collection's source with its last sync; with `refresh` the remote of a git source is asked.

    A download can be compared only by making it, and counts as unchanged.

    Raises:
        CollectionError, RefResolutionError: the source cannot be looked at.
    """
    if state is None or state.synced_at is None:
        return SyncResult("synced")
    if state.source != entry.locked_source:
        return SyncResult("updated", state.commit)
    reference = None if entry.source in LABELS else parse_reference(entry.source)
    if isinstance(reference, GitReference):
        commit = await sources.ask_for_commit(reference) if refresh else None
        after = commit or state.commit
        return SyncResult("unchanged" if after == state.commit else "updated", state.commit, after)
    if reference is not None and not isinstance(reference, FileReference):
        return SyncResult("unchanged")
    resolved = await sources.resolve(entry.source)
    content_hash = await in_thread(lambda stop: resolved.content_hash)
    return SyncResult("unchanged" if content_hash == state.content_hash else "updated")


_Uses = dict[str, list[tuple[ProfileId, Mapping[str, Any]]]]


async def find_moved(paths: Paths, sources: Sources, profile_ids: Iterable[ProfileId]) -> set[ProfileId]:
    """Return the profiles that a remote has something newer for. A remote that gives no answer has nothing newer."""
    candidates = tuple(profile_ids)
    uses = await in_thread(lambda stop: _find_uses(paths, candidates))
    moved: set[ProfileId] = set()

    async def ask(ref: str) -> None:
        try:
            resolved = await sources.resolve(ref, refresh=True)
            content_hash = None if resolved.commit else await in_thread(lambda stop: resolved.content_hash)
        except RefResolutionError as error:
            if error.reason == "auth":  # a lock has no credentials: the compile has, if the profile does
                moved.update(profile_id for profile_id, _ in uses[ref])
                return
            logger.warning("%s cannot be asked for something newer: %s", ref, error.message)
            return
        for profile_id, entry in uses[ref]:
            if (resolved.commit or content_hash) not in (entry.get("commit"), entry.get("content_hash")):
                moved.add(profile_id)

    await asyncio.gather(*map(ask, uses))
    return moved


def _find_uses(paths: Paths, profile_ids: Iterable[ProfileId]) -> _Uses:
    """Return the references that can move, each with the entries of the locks that it is in."""
    uses: _Uses = {}
    for profile_id in profile_ids:
        try:
            lock = read_lock(paths.profile_dir(profile_id))
        except (LockUnusableError, FormatUnsupportedError):
            continue
        for _, entry in lock.resources():
            if entry["mutable"] and entry["ref"] and _is_remote(entry["ref"]):
                uses.setdefault(entry["ref"], []).append((profile_id, entry))
    return uses


def _is_remote(ref: str) -> bool:
    try:
        return not isinstance(parse_reference(ref), FileReference | NameReference)
    except RefResolutionError:
        return False
