"""The user's own profiles: written in `config/profiles`, extracted like any local source, never changed by us."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from amplifier_foundation.sources.locks import locked_now
from amplifierd.documents.literal_secrets import KeepSecret
from amplifierd.exceptions import CollectionError
from amplifierd.identifiers import LOCAL, ProfileId
from amplifierd.issues import Issue
from amplifierd.paths import Paths

from .collections_lock import CollectionsLock
from .discovery import discover, hash_texts, stamp_texts
from .extraction import extract, locked_profile, remove_all
from .models import CollectionEntry, LockedCollection
from .older_layout import find_older, move_older_layout
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
        """Say whether there is a file that may be a profile, or something left of one."""
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
        """Say whether there is nothing to do; a new process looks at the texts once, and takes no lock for it."""
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
