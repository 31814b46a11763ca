"""The user's own profiles: written in `config/profiles`, extracted like any local source, never changed by us."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import shutil
from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path

from amplifier_foundation.sources.store import locked_now, make_directory, remove, unique
from amplifierd.exceptions import CollectionError, FormatUnsupportedError
from amplifierd.identifiers import LOCAL, ProfileId
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.builds.build import PLAN_FILE
from amplifierd.profiles.builds.lock import DEPENDENCIES_DIR, FILE_NAME, LockUnusableError, read_lock
from amplifierd.profiles.builds.publication import BUILDS_DIR, PROFILE_FILE
from amplifierd.profiles.documents.literal_secrets import KeepSecret

from .collections_lock import CollectionsLock
from .extraction import discover, extract, hash_texts, locked_profile, normalised, remove_all, stamp_texts
from .models import CollectionEntry, LockedCollection
from .sources import OWN_SOURCE, CollectionSources

OWN_ENTRY = CollectionEntry(LOCAL, OWN_SOURCE)


class OwnProfiles:
    """Keeps the extracted copies of the user's own profiles in step with what is written."""

    def __init__(
        self,
        paths: Paths,
        sources: CollectionSources,
        lock: CollectionsLock,
        in_use: Callable[[ProfileId], bool],
        keep: KeepSecret,
    ) -> None:
        self._paths, self._sources, self._lock, self._in_use, self._keep = paths, sources, lock, in_use, keep
        self._lock_path = paths.locks / f"collection-{LOCAL}.lock"
        self._seen: object = None
        self.moved: tuple[Issue, ...] = ()
        """What was moved here from an older layout."""

    def are_there(self) -> bool:
        """True if there is a file that may be a profile, or something left of one."""
        return self._lock.get(LOCAL) is not None or bool(stamp_texts(self._paths.own_profiles))

    def bring(self, *, wait_s: float = 0.0) -> None:
        """Extract what was written since the last look; blocks.

        A caller that does not want to wait for another that does the same sees what was there before.

        Raises:
            CollectionError: another process did not finish within `wait_s`.
        """
        if self._is_seen():
            return
        with locked_now(self._lock_path, wait_s=wait_s) as held:
            if held:
                self._bring()
            elif wait_s:
                message = f"{self._paths.own_profiles} is being read by another process"
                raise CollectionError(message, code="collection-busy", hint="try again")

    def find_unseen(self) -> set[str]:
        """Return the names whose texts are not those that were extracted; nothing is changed."""
        root, state = self._paths.own_profiles, self._lock.get(LOCAL)
        profiles = discover(root, LOCAL, boundary=root, keep=self._keep).profiles
        found = {name: locked_profile(each) for name, each in profiles.items()}
        known = dict(state.profiles) if state else {}
        return {name for name in {*found, *known} if found.get(name) != known.get(name)}

    def _is_seen(self) -> bool:
        """True if there is nothing to do; a new process looks at the texts once, and takes no lock for it."""
        state, seen = self._lock.get(LOCAL), stamp_texts(self._paths.own_profiles)
        if find_older(self._paths, _names_in(state), self._keep):
            return False
        if self._seen is None and self._is_extracted(state, has_texts=bool(seen)):
            self._seen = seen
        return self._seen == seen

    def _is_extracted(self, state: LockedCollection | None, *, has_texts: bool) -> bool:
        if state is None or not has_texts:
            return state is None and not has_texts
        return state.content_hash == hash_texts(self._paths.own_profiles)

    def _bring(self) -> None:
        before = self._lock.get(LOCAL)
        self.moved += move_older_layout(self._paths, _names_in(before), self._keep)
        seen = stamp_texts(self._paths.own_profiles)
        if seen:
            resolved = self._sources.resolve_own()
            done = extract(self._paths, OWN_ENTRY, resolved, before, self._in_use, self._keep)
            self._lock.record(LOCAL, done.state)
        elif before is not None:
            orphaned, _ = remove_all(self._paths, LOCAL, self._in_use)
            left = replace(before, profiles={}, broken={}, errors=(), orphaned=orphaned)
            self._lock.record(LOCAL, left if orphaned else None)
        self._seen = seen


def _names_in(state: LockedCollection | None) -> set[str]:
    return {*state.profiles, *state.orphaned, *state.broken} if state else set()


# What people wrote into `share/profiles/local`, as earlier versions had it: moved to `config/profiles`, whole.
#
# Each entry is moved by one rename, so that a crash leaves it in one place or in the other. A profile that an
# earlier version compiled is a link to a build with the author's files in it; those are copied out, and the build
# stays.


logger = logging.getLogger(__name__)

MOVED = "profile-moved"

_ARRIVING = ".arriving-"


def find_older(paths: Paths, recorded: Collection[str], keep: KeepSecret) -> list[Path]:
    """Return what people wrote below `share/profiles/local`.

    `recorded` are the profiles there that were extracted from `config/profiles`: they are ours.
    """
    source, target = paths.profiles / LOCAL, paths.own_profiles
    names = set(os.listdir(source)) - {BUILDS_DIR, *recorded} if source.is_dir() else ()  # noqa: PTH208 - names are enough
    if not names:
        return []
    found = discover(target, LOCAL, boundary=target, keep=keep).profiles
    written = {name: document.text for name, document in found.items()}
    return [entry for name in sorted(names) if not _is_ours(entry := source / name, written.get(name))]


def move_older_layout(paths: Paths, recorded: Collection[str], keep: KeepSecret) -> tuple[Issue, ...]:
    """Move what people wrote below `share/profiles/local` to `config/profiles`, and report each move."""
    target = paths.own_profiles
    for leftover in target.glob(f"{_ARRIVING}*"):
        remove(leftover)
    moved = []
    for entry in find_older(paths, recorded, keep):
        place = _free_place(target, entry.name)
        if _leads_to_build(entry):
            _copy_out(entry, place)
        else:
            _move(entry, place)
        moved.append(_report(paths, entry, place))
    return tuple(moved)


def _is_ours(entry: Path, written: str | None) -> bool:
    """True if an entry was made from what is in `config/profiles`, or is something that an older version built."""
    if _leads_to_build(entry):
        return written is not None or _is_artefact(entry)
    if written is None or not entry.is_dir() or os.listdir(entry) != [PROFILE_FILE]:  # noqa: PTH208 - names are enough
        return False
    return (entry / PROFILE_FILE).read_text(encoding="utf-8", errors="replace") == normalised(written)


def _leads_to_build(entry: Path) -> bool:
    return entry.is_symlink() and entry.readlink().parts[:1] == (BUILDS_DIR,)


def _is_artefact(entry: Path) -> bool:
    """True if a link leads to nothing, or to a build of a version that keeps people's files elsewhere."""
    return not entry.is_dir() or (entry / PLAN_FILE).exists()


def _free_place(directory: Path, name: str) -> Path:
    place, number = directory / name, 2
    while os.path.lexists(place):
        place, number = directory / f"{name}-{number}", number + 1
    return place


def _move(entry: Path, place: Path) -> None:
    make_directory(place.parent)
    if entry.is_symlink() and not entry.readlink().is_absolute():
        _move_link(entry, place)
        return
    try:
        entry.rename(place)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _copy(entry, place, without=set())
        gone = make_directory(entry.parent / BUILDS_DIR) / f".trash-{unique()}"
        entry.rename(gone)
        remove(gone)


def _move_link(entry: Path, place: Path) -> None:
    """Make a link at the new place that leads where the old one does; a relative target counts from its link."""
    target = os.path.realpath(entry.parent) / entry.readlink()
    arriving = place.parent / f"{_ARRIVING}{unique()}"
    arriving.symlink_to(os.path.relpath(target, os.path.realpath(place.parent)))
    arriving.rename(place)
    entry.unlink()


def _copy_out(entry: Path, place: Path) -> None:
    """Copy a build's directory without what the compile made itself: what the author named beside the profile stays."""
    made = {FILE_NAME, DEPENDENCIES_DIR, *(path.name for path in entry.glob(f"{FILE_NAME}.v*.bak"))}
    with contextlib.suppress(LockUnusableError, FormatUnsupportedError):
        for _, resource in read_lock(entry).resources():
            if resource["path"] and not str(resource["ref"]).startswith("."):
                made.add(resource["path"])
    _copy(entry.resolve(), place, without=made)


def _copy(source: Path, place: Path, *, without: set[str]) -> None:
    """Copy a file or a directory, everything in it and links as links; it appears at its place in one step."""

    def ignored(directory: str, names: list[str]) -> list[str]:
        inside = Path(directory).relative_to(source)
        return [name for name in names if (inside / name).as_posix() in without]

    arriving = make_directory(place.parent) / f"{_ARRIVING}{unique()}"
    if source.is_dir() and not source.is_symlink():
        shutil.copytree(source, arriving, symlinks=True, ignore=ignored)
    else:
        shutil.copy2(source, arriving, follow_symlinks=False)
    arriving.rename(place)


def _report(paths: Paths, entry: Path, place: Path) -> Issue:
    message = f"{entry} was moved to {place}: what you write is in {paths.own_profiles}"
    logger.warning("%s", message)
    return Issue(MOVED, message, file=place, fix="edit it there", severity="warning")
