"""From a collection's source to its files on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import GitReference, ResolvedRef, parse_reference
from amplifier_foundation.sources.store import now
from amplifierd.builds.collection_root import CollectionRoot
from amplifierd.exceptions import CollectionError

from .builtin import BUILTIN_SOURCE
from .models import LockedCollection

if TYPE_CHECKING:
    from amplifierd.home import Home


async def resolve_source(home: Home, source: str, *, refresh: bool = False) -> ResolvedRef:
    """Return a collection's directory; a relative path counts from `collections.yaml`.

    Raises:
        RefResolutionError: it cannot be had.
        CollectionError: it is not a directory.
    """
    if source == BUILTIN_SOURCE:
        return _shipped(home)
    resolved = await home.sources.resolve(source, base_dir=home.paths.share, refresh=refresh)
    if not resolved.path.is_dir():
        message = f"The source of a collection must be a directory: {source}"
        raise CollectionError(message, code="source-not-directory", hint="name the directory that holds its profiles")
    return resolved


async def resolve_root(home: Home, state: LockedCollection) -> CollectionRoot:
    """Return a collection's files as of its last sync; a commit that left the cache is fetched again.

    Raises:
        RefResolutionError: they cannot be had.
        CollectionError: the source is no longer a directory.
    """
    resolved = await resolve_source(home, pinned_source(state))
    return CollectionRoot(
        path=resolved.path,
        boundary=resolved.root,
        commit=state.commit,
        reference=_git_reference(state.source),
        content_hash=state.content_hash,
    )


def pinned_source(state: LockedCollection) -> str:
    """Return the source of what was synced: for git the commit, whatever its branch means by now."""
    reference = _git_reference(state.source)
    if reference is None or state.commit is None:
        return state.source
    return str(GitReference(reference.url, state.commit, state.subpath))


def _git_reference(source: str) -> GitReference | None:
    reference = None if source == BUILTIN_SOURCE else parse_reference(source)
    return reference if isinstance(reference, GitReference) else None


def _shipped(home: Home) -> ResolvedRef:
    root = home.shipped_collection
    if root is None or not root.is_dir():
        message = f"The collection shipped with the distribution is missing: {root} does not exist"
        raise RefResolutionError(message, BUILTIN_SOURCE, "not-found", hint="install the distribution again")
    return ResolvedRef(ref=BUILTIN_SOURCE, kind="local", path=root, root=root, resolved_at=now())
