"""From a collection's source to its files on this machine."""

from __future__ import annotations

from pathlib import Path

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import (
    FileReference,
    GitReference,
    NameReference,
    ResolvedRef,
    Sources,
    parse_reference,
)
from amplifier_foundation.sources.store import now
from amplifier_system.urls import shown
from amplifierd.exceptions import CollectionError
from amplifierd.paths import Paths
from amplifierd.profiles.builds.profile_catalogue import CollectionRoot

from .extraction import hash_texts
from .models import LockedCollection
from .registry_file import BUILTIN_SOURCE

OWN_SOURCE = "config/profiles"
"""How the source of the user's own profiles is shown; it is not a reference."""

LABELS = frozenset({BUILTIN_SOURCE, OWN_SOURCE})


class CollectionSources:
    """Finds the files of a home's collections; `shipped` is the directory of the one that comes with us."""

    def __init__(self, paths: Paths, sources: Sources, shipped: Path | None) -> None:
        self._paths, self._sources, self._shipped = paths, sources, shipped

    async def resolve(self, source: str, *, refresh: bool = False) -> ResolvedRef:
        """Return a collection's directory; a relative path counts from `collections.yaml`.

        Raises:
            RefResolutionError: it cannot be obtained.
            CollectionError: it is not a directory, or is where we generate profiles.
        """
        if source == BUILTIN_SOURCE:
            return self._resolve_shipped()
        if source == OWN_SOURCE:
            return self.resolve_own()
        resolved = await self._sources.resolve(source, base_dir=self._paths.share, refresh=refresh)
        if not resolved.path.is_dir():
            message = f"The source of a collection must be a directory: {shown(source)}"
            hint = "name the directory that holds its profiles"
            raise CollectionError(message, code="source-not-directory", hint=hint)
        if resolved.path.resolve().is_relative_to(self._paths.profiles.resolve()):
            message = f"The source of a collection cannot be in {self._paths.profiles}: {shown(source)}"
            hint = "what is there is generated, and replaced; move what you wrote to another directory"
            raise CollectionError(message, code="source-generated", hint=hint)
        return resolved

    async def root(self, state: LockedCollection, written: str) -> CollectionRoot:
        """Return a collection's files as of its last sync; a commit that left the cache is fetched again.

        `written` is the source of its entry, for the credentials that may be in it.

        Raises:
            RefResolutionError: they cannot be obtained.
            CollectionError: the source is no longer a directory.
        """
        resolved = await self.resolve(pinned_source(state, written))
        return CollectionRoot(
            path=resolved.path,
            boundary=resolved.root,
            commit=state.commit,
            reference=_git_reference(state.source),
            content_hash=state.content_hash,
        )

    async def ask_for_commit(self, reference: GitReference) -> str | None:
        """Return what a ref means now, None for one that does not move.

        Raises:
            CollectionError: the remote does not answer.
        """
        status = await self._sources.get_status(reference)
        if status.error:
            raise CollectionError(status.error, code="sync-failed")
        return status.remote_commit

    def resolve_own(self) -> ResolvedRef:
        """Return the directory of the user's own profiles; only their texts count for its hash."""
        root = self._paths.own_profiles
        return ResolvedRef(OWN_SOURCE, "local", root, root, now(), known_hash=hash_texts(root))

    def directory_of(self, state: LockedCollection) -> Path | None:
        """Return where a person edits the files of a collection, `None` when that is not on this machine."""
        if state.source == BUILTIN_SOURCE:
            return self._shipped
        if state.source == OWN_SOURCE:
            return self._paths.own_profiles
        reference = parse_reference(state.source)
        if not isinstance(reference, FileReference) or reference.subpath:
            return None
        return self._paths.share / Path(reference.path).expanduser()

    def fetched_directory_of(self, state: LockedCollection) -> Path | None:
        """Return where the cache has the synced files of a collection from git, `None` when it does not have them."""
        reference = _git_reference(state.source)
        if reference is None or state.commit is None:
            return None
        tree = self._sources.cached_tree(GitReference(reference.url, state.commit))
        directory = tree / state.subpath if state.subpath else tree
        return directory if directory.is_dir() else None

    def is_remote(self, state: LockedCollection) -> bool:
        """True if the files of a collection were fetched from elsewhere."""
        if state.source in LABELS:
            return False
        return not isinstance(parse_reference(state.source), FileReference | NameReference)

    def _resolve_shipped(self) -> ResolvedRef:
        root = self._shipped
        if root is None or not root.is_dir():
            message = f"The collection shipped with the distribution is missing: {root} does not exist"
            raise RefResolutionError(message, BUILTIN_SOURCE, "not-found", hint="install the distribution again")
        return ResolvedRef(ref=BUILTIN_SOURCE, kind="local", path=root, root=root, resolved_at=now())


def pinned_source(state: LockedCollection, written: str) -> str:
    """Return the source of what was synced: for git the commit, whatever its branch means by now.

    `written` is the source of the collection's entry; if it is still the same one it has the credentials, if any.
    """
    source = written if shown(written) == state.source else state.source
    reference = _git_reference(source)
    if reference is None or state.commit is None:
        return source
    return str(GitReference(reference.url, state.commit, state.subpath))


def _git_reference(source: str) -> GitReference | None:
    reference = None if source in LABELS else parse_reference(source)
    return reference if isinstance(reference, GitReference) else None
