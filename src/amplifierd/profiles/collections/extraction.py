"""Bringing a collection's profiles to `share/profiles/<collection>/`: what is the same is left alone."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from amplifier_foundation.sources import ResolvedRef
from amplifier_foundation.sources.store import now, remove
from amplifierd.identifiers import ProfileId, is_collection_or_profile_name
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.builds.publication import BUILDS_DIR, remove_profile, replace_profile_text
from amplifierd.profiles.documents.document import (
    ALL_AGENTS,
    DeclaredReference,
    ProfileDocument,
    ReferenceBase,
    hash_text,
)
from amplifierd.profiles.documents.literal_secrets import KeepSecret, conceal_document
from amplifierd.profiles.documents.profile_reader import HEADER_CODES, find_location, read_document

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
    """True if every profile of the last sync is still there as it was extracted."""
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
    """True if a profile refers to files of its own collection."""
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


# Finding the profiles of a collection: which files count, what they are called, and what is wrong with the others.


_PROFILE_FILE = "profile.md"
_GROUPS = ((_PROFILE_FILE, f"*/{_PROFILE_FILE}", f"profiles/*/{_PROFILE_FILE}"), ("profiles/*.md",), ("*.md",))
_NO_PROFILE = {"no-frontmatter", "profile-section-missing"}
_MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True)
class Discovery:
    """The usable profiles of a collection by name, and what is wrong with its files.

    `broken` are the files whose header cannot be read, by the name that each should have.
    """

    profiles: dict[str, ProfileDocument]
    issues: tuple[Issue, ...]
    broken: dict[str, str] = field(default_factory=dict)


def discover(root: Path, collection_id: str, *, boundary: Path, keep: KeepSecret | None = None) -> Discovery:
    """Read the profiles below a collection's root; the first file that defines a name has it.

    Files that are not profiles are skipped. A file that should be one and has a broken header is in `issues`, as is
    one that leads out of `boundary`; the paths in them count from the root. With `keep` secrets in the profiles are put
    into the key store, and references in their place.
    """
    profiles: dict[str, ProfileDocument] = {}
    broken: dict[str, str] = {}
    issues: list[Issue] = []
    limit = Path(os.path.realpath(boundary))
    for relative in _candidates(root):
        if (printable := os.fsencode(relative).decode(errors="replace")) != str(relative):
            message = f"{printable} cannot be used: its name is not UTF-8"
            issues.append(Issue("unreadable", message, file=Path(printable), fix="give it another name"))
            continue
        document, problems = _read_profile(root, relative, collection_id, limit)
        name = document.profile_id.name if document else _default_name(relative, collection_id)
        if problems or document is None:
            issues += problems
            if problems:
                broken.setdefault(name, relative.as_posix())
        elif name in profiles:
            issues.append(_duplicate(document, profiles[name]))
        else:
            profiles[name] = document if keep is None else conceal_document(document, keep)
    return Discovery(profiles, tuple(issues), {name: file for name, file in broken.items() if name not in profiles})


def stamp_texts(root: Path) -> tuple[tuple[str, int, int, int], ...]:
    """Return what changes when a file that may be a profile is written, added or removed; nothing is read."""
    found = []
    for relative in _candidates(root):
        with contextlib.suppress(FileNotFoundError):  # an editor takes a file away before it puts another there
            status = (root / relative).stat()
            found.append((str(relative), status.st_ctime_ns, status.st_size, status.st_ino))
    return tuple(found)


def hash_texts(root: Path) -> str:
    """Return `sha256:<hex>` of the files that may be profiles, with their names; the unreadable count as empty."""
    digest = hashlib.sha256()
    for relative in _candidates(root):
        content = b""
        with contextlib.suppress(OSError):  # what is wrong with it is told where it is read
            path = root / relative
            content = path.read_bytes() if path.stat().st_size <= _MAX_BYTES else b""
        digest.update(os.fsencode(relative) + f"\0{hashlib.sha256(content).hexdigest()}\n".encode())
    return f"sha256:{digest.hexdigest()}"


def _candidates(root: Path) -> Iterator[PurePosixPath]:
    """Yield the files that may be profiles, in the order in which they may claim a name."""
    if not root.is_dir():  # as it is for most people's own profiles, whenever a session is created
        return
    seen: set[PurePosixPath] = set()
    for patterns in _GROUPS:
        found = {PurePosixPath(path.relative_to(root)) for pattern in patterns for path in root.glob(pattern)}
        for relative in sorted(found - seen):
            seen.add(relative)
            hidden = any(part.startswith(".") for part in relative.parts)
            if not hidden and relative.name.lower() != "readme.md" and (root / relative).is_file():
                yield relative


def _read_profile(
    root: Path, relative: PurePosixPath, collection_id: str, limit: Path
) -> tuple[ProfileDocument | None, list[Issue]]:
    """Return a file's profile, and what keeps it from being used; neither if it is not a profile at all."""
    file = Path(relative)
    path = root / relative
    if not Path(os.path.realpath(path)).is_relative_to(limit):
        return None, [Issue("unsafe-path", f"{relative} leads out of the collection", file=file)]
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None, [Issue("too-large", f"{relative} has more than {_MAX_BYTES:,} bytes", file=file)]
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:  # it was there a moment ago
        return None, []
    except (OSError, UnicodeDecodeError) as error:
        return None, [Issue("unreadable", f"{relative} cannot be read: {error}", file=file)]
    default_name = _default_name(relative, collection_id)
    base = ReferenceBase(collection_id, relative.parent)
    document = read_document(text, path=file, profile_id=ProfileId(collection_id, default_name), base=base)
    problems = [issue for issue in document.issues if issue.code in HEADER_CODES and issue.severity == "error"]
    if relative.name != _PROFILE_FILE and any(issue.code in _NO_PROFILE for issue in problems):
        return None, []
    return document, problems


def _duplicate(document: ProfileDocument, first: ProfileDocument) -> Issue:
    name, file = document.profile_id.name, document.path
    message = f"Profile '{name}' of {file.as_posix()} is defined in {first.path.as_posix()} already"
    line = find_location(document.text, "profile.name")
    fix = "give one of them another name"
    return Issue("duplicate-profile", message, "profile.name", file, line, fix, severity="warning")


def _default_name(relative: PurePosixPath, collection_id: str) -> str:
    if relative.name == _PROFILE_FILE:
        return relative.parent.name or collection_id
    return relative.stem
