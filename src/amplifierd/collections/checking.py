"""What a sync would do to a collection, told without recording or fetching anything."""

from __future__ import annotations

from amplifier_foundation.sources import FileReference, GitReference, parse_reference
from amplifier_system.threads import in_thread

from .models import CollectionEntry, LockedCollection, SyncResult
from .sources import LABELS, CollectionSources


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
