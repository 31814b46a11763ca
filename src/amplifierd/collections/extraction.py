"""Bringing a collection's profiles to `share/profiles/<collection>/`: what is the same is left alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amplifier_foundation.sources import ResolvedRef
from amplifier_foundation.sources.store import now, remove
from amplifierd.builds.publication import BUILDS_DIR, remove_profile, replace_profile_text
from amplifierd.documents.document import ALL_AGENTS, DeclaredReference, ProfileDocument, hash_text
from amplifierd.documents.literal_secrets import KeepSecret
from amplifierd.identifiers import ProfileId, is_collection_or_profile_name
from amplifierd.issues import Issue
from amplifierd.paths import Paths

from .discovery import discover
from .models import CollectionEntry, LockedCollection, LockedProfile

SYNC_FAILED = "sync-failed"
"""The code of the error that is stored for a collection whose source could not be had."""

InUse = Callable[[ProfileId], bool]


@dataclass(frozen=True)
class Extraction:
    """What an extraction did: the state to store, and by name which profiles' texts, files or existence changed.

    `touched` have the same text as before, but use files of a collection that changed.
    """

    state: LockedCollection
    is_new: bool = False
    has_changed: bool = False
    changed: frozenset[str] = frozenset()
    touched: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


def extract(
    paths: Paths,
    entry: CollectionEntry,
    resolved: ResolvedRef,
    before: LockedCollection | None,
    in_use: InUse,
    keep: KeepSecret,
) -> Extraction:
    """Compare a collection's files with the last sync, and write the profiles that differ.

    Profiles that are gone are removed, or kept as orphans while a session uses them. `keep` stores what is secret in
    those that are there.

    Raises:
        RefResolutionError: a link leads out of the source.
        OSError: a profile could not be written.
        SettingsError: a secret could not be stored.
    """
    known = before if before is not None and before.synced_at is not None else None
    if known is not None and _is_same(known, entry, resolved) and _is_intact(paths, entry.identifier, known):
        orphaned, removed = _remove_vanished(paths, entry.identifier, {*known.profiles, *known.broken}, in_use)
        errors = tuple(issue for issue in known.errors if issue.code != SYNC_FAILED)
        return Extraction(replace(known, orphaned=orphaned, errors=errors), removed=removed)
    return _extract_anew(paths, entry, resolved, known, in_use, keep)


def remove_all(paths: Paths, collection_id: str, in_use: InUse) -> tuple[tuple[str, ...], frozenset[str]]:
    """Remove what was extracted of a collection; return the names that had to stay, and those that are gone."""
    orphaned, removed = _remove_vanished(paths, collection_id, set(), in_use)
    directory = paths.profiles / collection_id
    if not orphaned and not (directory / BUILDS_DIR).exists():  # builds that are left are in use
        remove(directory)
    return orphaned, removed


def failed(entry: CollectionEntry, before: LockedCollection | None, reason: Issue) -> LockedCollection:
    """Return the state to store when a source could not be had: the last good one, with the reason."""
    state = before or LockedCollection(entry.locked_source)
    errors = tuple(issue for issue in state.errors if issue.code != SYNC_FAILED)
    return replace(state, errors=(*errors, reason))


def _extract_anew(
    paths: Paths,
    entry: CollectionEntry,
    resolved: ResolvedRef,
    known: LockedCollection | None,
    in_use: InUse,
    keep: KeepSecret,
) -> Extraction:
    collection_id = entry.identifier
    found = discover(resolved.path, collection_id, boundary=resolved.root, keep=keep)
    content_hash = resolved.content_hash
    has_changed = known is not None and (known.commit, known.content_hash) != (resolved.commit, content_hash)
    changed, touched = set(), set()
    for name, document in found.profiles.items():
        if _write(paths, ProfileId(collection_id, name), normalised(document.text)):
            changed.add(name)
        elif has_changed and _uses_own_files(document.sections):
            touched.add(name)
    orphaned, removed = _remove_vanished(paths, collection_id, {*found.profiles, *found.broken}, in_use)
    is_restored = known is not None and known.source == entry.locked_source and not has_changed
    state = LockedCollection(
        source=entry.locked_source,
        commit=resolved.commit,
        content_hash=content_hash,
        synced_at=known.synced_at if known is not None and is_restored else now(),
        subpath=resolved.subpath if resolved.commit else None,
        profiles={name: locked_profile(document) for name, document in found.profiles.items()},
        orphaned=orphaned,
        broken=found.broken,
        errors=found.issues,
    )
    return Extraction(
        state,
        is_new=known is None,
        has_changed=has_changed,
        changed=frozenset(changed),
        touched=frozenset(touched),
        removed=removed,
    )


def _is_same(known: LockedCollection, entry: CollectionEntry, resolved: ResolvedRef) -> bool:
    if known.source != entry.locked_source or known.commit != resolved.commit:
        return False
    if resolved.commit is not None:
        return known.subpath == resolved.subpath
    return known.content_hash == resolved.content_hash


def _is_intact(paths: Paths, collection_id: str, known: LockedCollection) -> bool:
    """Say whether every profile of the last sync is still there as it was extracted."""
    for name, profile in known.profiles.items():
        text = _read(paths.profile_file(ProfileId(collection_id, name)))
        if text is None or hash_text(text) != profile.hash:
            return False
    return True


def _write(paths: Paths, profile_id: ProfileId, text: str) -> bool:
    if _read(paths.profile_file(profile_id)) == text:
        return False
    replace_profile_text(paths, profile_id, text)
    return True


def _read(path: Path) -> str | None:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None


def _remove_vanished(
    paths: Paths, collection_id: str, present: set[str], in_use: InUse
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Remove the extracted profiles that are no longer in the collection, except those a session uses."""
    directory = paths.profiles / collection_id
    extracted = _profile_names(directory)
    unfinished = _profile_names(directory / BUILDS_DIR) - extracted  # a removal was interrupted, or a build was held
    gone = sorted(extracted - present)
    orphaned = tuple(name for name in gone if in_use(ProfileId(collection_id, name)))
    removed = [name for name in gone if name not in orphaned]
    for name in (*removed, *sorted(unfinished - present)):
        remove_profile(paths, ProfileId(collection_id, name))
    return orphaned, frozenset(removed)


def _profile_names(directory: Path) -> set[str]:
    found = {path.name for path in directory.iterdir() if path.is_dir()} if directory.is_dir() else set()
    return {name for name in found if is_collection_or_profile_name(name)}


def locked_profile(document: ProfileDocument) -> LockedProfile:
    return LockedProfile(
        path=document.path.as_posix(),
        version=document.metadata["version"],
        hash=hash_text(normalised(document.text)),
        extends=document.extends,
    )


def _uses_own_files(value: Any) -> bool:
    """Say whether a profile refers to files of its own collection."""
    return any(text.startswith(("./", "../")) for text in _references(value))


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, DeclaredReference):
        yield str(value)
    elif isinstance(value, Mapping):
        if ALL_AGENTS in value:
            yield "./agents"
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def normalised(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
