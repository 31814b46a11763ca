"""What was fetched and built: is it fresh, is it whole, and what may go."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Depends
from pydantic import Field

from amplifier_foundation.sources import ProgressEvent
from amplifierd.identifiers import ProfileId
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.collections.home_collections import Collections
from amplifierd.profiles.collections.models import Collection
from amplifierd.server.http.dependencies import Admin, TheDaemon, requires
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import STARTED, Answer, Body, Wait, operate, problems
from amplifierd.server.http.routers import api_router
from amplifierd.source_cache import measure_cache

router = api_router("/cache", tags=["cache"], route_class=IdempotentRoute)

Freshness = Literal["fresh", "stale", "missing"]


class CachedProfile(Answer):
    profile_id: str
    status: str


class CachedCollection(Answer):
    collection_id: str
    status: str
    installed_at: str | None = None
    synced_at: str | None = None
    profiles: list[CachedProfile]


class CacheStatus(Answer):
    overall_status: Freshness
    collections: list[CachedCollection]
    size_bytes: int


class DamagedProfile(Answer):
    profile_id: str
    status: str
    reasons: list[dict[str, str]]


class Verified(Answer):
    checked: int
    damaged: list[DamagedProfile]


class PruneRequest(Body):
    dry_run: bool = Field(default=False, description="only report what would be removed")
    keep_days: Annotated[float, Field(ge=0, le=36500)] | None = Field(
        default=None, description="what was used since stays; by default as the settings say"
    )


class Pruned(Answer):
    removed: list[str]
    bytes: int


@router.get("/status", dependencies=[Depends(requires("read"))], responses=problems(409))
async def get_cache_status(daemon: TheDaemon) -> CacheStatus:
    """Show the state of the builds according to their locks; `…/profiles/{profile_id}/status` looks closer."""
    collections = await asyncio.to_thread(daemon.home.collections.list)
    return CacheStatus(
        overall_status=_overall([profile.status for each in collections for profile in each.profiles]),
        collections=[_shown(each) for each in collections],
        size_bytes=await measure_cache(daemon.home.paths.cache),
    )


@router.post("/verify", responses=STARTED)
async def verify_cache(daemon: TheDaemon, caller: Admin, wait: Wait = True) -> Verified:
    """Read and hash every file of every build, and list what is damaged; the next compile restores it."""
    collections, profiles, operations = daemon.home.collections, daemon.home.profiles, daemon.operations

    async def work() -> dict[str, Any]:
        compiled, found = await asyncio.to_thread(_compiled, collections, profiles), []
        operations.expect("profile", len(compiled))
        for each in compiled:
            found.append(await profiles.verify(each))
            operations.report(ProgressEvent("profile", str(each), "ready"))
        damaged = [
            DamagedProfile(
                profile_id=each.profile_id, status=each.status, reasons=[reason.to_dict() for reason in each.reasons]
            )
            for each in found
            if {"resource-missing", "resource-modified", "lock-corrupt"} & {*each.codes}
        ]
        return Verified(checked=len(found), damaged=damaged).model_dump()

    verified: Verified = await operate(operations, "cache-verify", "", work, caller=caller, wait=wait)
    return verified


@router.post("/prune", responses=STARTED)
async def prune(daemon: TheDaemon, caller: Admin, body: PruneRequest | None = None, wait: Wait = True) -> Pruned:
    """Remove cached sources that nothing refers to and that were not used for some days."""
    asked, cache = body or PruneRequest(), daemon.home.source_cache

    async def work() -> dict[str, Any]:
        done = await cache.prune(keep_days=asked.keep_days, dry_run=asked.dry_run)
        return Pruned(removed=[str(path) for path in done.removed], bytes=done.freed_bytes).model_dump()

    kind = "cache-prune-check" if asked.dry_run else "cache-prune"
    pruned: Pruned = await operate(daemon.operations, kind, "", work, caller=caller, wait=wait)
    return pruned


def _compiled(collections: Collections, profiles: Profiles) -> list[ProfileId]:
    return [each for each in collections.profile_ids() if profiles.find_build(each) is not None]


def _shown(collection: Collection) -> CachedCollection:
    name = collection.identifier
    return CachedCollection(
        collection_id=name,
        status=collection.status,
        installed_at=collection.installed_at,
        synced_at=collection.synced_at,
        profiles=[
            CachedProfile(profile_id=ProfileId(name, each.name), status=each.status) for each in collection.profiles
        ],
    )


def _overall(statuses: list[str]) -> Freshness:
    if not statuses or all(status == "missing" for status in statuses):
        return "missing"
    return "fresh" if all(status in ("fresh", "degraded") for status in statuses) else "stale"
