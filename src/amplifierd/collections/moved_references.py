"""Which compiled profiles use a branch or a download that means something else by now; every remote is asked once."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any

from amplifier_foundation.exceptions import RefResolutionError
from amplifier_foundation.sources import FileReference, NameReference, Sources, parse_reference
from amplifier_system.threads import in_thread
from amplifierd.builds.lock import LockUnusableError, read_lock
from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.identifiers import ProfileId
from amplifierd.paths import Paths

logger = logging.getLogger(__name__)

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
