"""Collections: the sources that profiles come from."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import Depends, Query, Request, Response
from pydantic import Field

from amplifier_foundation.paths import parse_uri
from amplifierd.exceptions import RefResolutionError, RequestRefusedError
from amplifierd.identifiers import checked_collection_id
from amplifierd.profiles.collections.models import Collection
from amplifierd.server.http.dependencies import Admin, TheDaemon, note, requires
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import (
    FETCHING,
    Answer,
    Body,
    Page,
    PageLimit,
    PageOffset,
    Wait,
    operate,
    paged,
    problems,
)
from amplifierd.server.http.routers import api_router

router = api_router("/collections", tags=["collections"], route_class=IdempotentRoute)

_READ, _ADMIN = [Depends(requires("read"))], [Depends(requires("admin"))]


class CollectionProfileInfo(Answer):
    name: str
    version: str
    path: str
    status: str
    installed_at: str | None = None


class CollectionInfo(Answer):
    """A collection, and what its last sync brought. `profiles` is there when it is asked for."""

    identifier: str
    source: str
    status: str
    enabled: bool
    auto_sync: bool
    commit: str | None = None
    content_hash: str | None = None
    installed_at: str | None = None
    synced_at: str | None = None
    profile_count: int
    profiles: list[CollectionProfileInfo] | None = None
    warnings: list[dict[str, Any]]


class CollectionPage(Page):
    collections: list[CollectionInfo]
    warnings: list[dict[str, Any]] = Field(description="what is wrong with collections.yaml")


class CollectionDetails(CollectionInfo):
    """A collection with what it holds beside profiles; `metadata` is what its `pyproject.toml` says."""

    metadata: dict[str, Any]
    agents: list[str]
    context: list[str]
    modules: list[str]


class NewCollection(Body):
    identifier: str
    source: str
    compile: bool = Field(default=True, description="compile its profiles, too")


class MountedCollection(Answer):
    status: Literal["mounted"] = "mounted"
    identifier: str
    source: str
    profile_count: int
    message: str
    warning: str | None = None


class CollectionChange(Body):
    source: str | None = None
    enabled: bool | None = None
    auto_sync: bool | None = None


class SyncRequest(Body):
    force_refresh: bool = Field(default=True, description="ask remotes what moved")
    auto_compile: bool | None = Field(default=None, description="compile what changed; by default as the settings say")
    force_compile: bool = False
    check_only: bool = Field(default=False, description="only report what would happen")


class SyncInfo(Answer):
    status: Literal["synced", "updated", "unchanged", "skipped", "error"]
    commit_before: str | None = None
    commit_after: str | None = None
    profiles: dict[str, str]
    errors: list[dict[str, Any]]
    warnings: list[str]


class SyncResults(Answer):
    results: dict[str, SyncInfo]


@router.get("", dependencies=_READ, responses=problems(409))
async def list_collections(
    daemon: TheDaemon,
    include: Annotated[Literal["profiles"] | None, Query(description="also list the profiles of each")] = None,
    limit: PageLimit = 100,
    offset: PageOffset = 0,
) -> CollectionPage:
    """List the collections: the shipped one, the registered ones in order, and your own."""
    collections = daemon.home.collections
    found = await asyncio.to_thread(collections.list)
    part, facts = paged(found, limit, offset)
    infos = [CollectionInfo(**_shown(each, with_profiles=include == "profiles")) for each in part]
    warnings = [issue.to_dict() for issue in await asyncio.to_thread(collections.warnings)]
    return CollectionPage(collections=infos, warnings=warnings, **facts)


@router.post("", status_code=201, responses={**FETCHING, **problems(400, 409)})
async def add_collection(
    daemon: TheDaemon, caller: Admin, request: Request, response: Response, body: NewCollection, wait: Wait = True
) -> MountedCollection:
    """Register a collection, extract its profiles and compile them; what cannot be fetched is not registered."""
    checked_collection_id(body.identifier)
    note(request, identifier=body.identifier, source=body.source)
    home = daemon.home

    async def work() -> dict[str, Any]:
        try:
            done = await home.collections.add(body.identifier, body.source, compile=body.compile)
        except RefResolutionError as error:
            if error.reason == "not-found" and parse_uri(error.ref).is_file:
                raise RequestRefusedError(error.message, code="invalid-request", hint=error.hint) from error
            raise
        source = home.collections.get(body.identifier).source
        return MountedCollection(
            identifier=done.collection_id,
            source=source,
            profile_count=done.profile_count,
            message=done.message,
            warning=done.warning,
        ).model_dump()

    added: MountedCollection = await operate(
        daemon.operations, "collection-add", body.identifier, work, caller=caller, wait=wait
    )
    response.headers["Location"] = f"{request.url.path}/{body.identifier}"
    return added


@router.post("/sync", responses=FETCHING)
async def sync_collections(
    daemon: TheDaemon, caller: Admin, body: SyncRequest | None = None, wait: Wait = True
) -> SyncResults:
    """Update all collections from their sources, and compile what changed."""
    return await _sync(daemon, caller, None, body or SyncRequest(), wait=wait)


@router.get("/{collection_id}", dependencies=_READ, responses=problems(404, 409, 502, 504))
async def get_collection(daemon: TheDaemon, collection_id: str) -> CollectionDetails:
    """Show a collection with everything in it."""
    found = await asyncio.to_thread(daemon.home.collections.get, collection_id)
    inventory: dict[str, Any] = {"metadata": {}, "agents": [], "context": [], "modules": []}
    if found.enabled:
        taken = asdict(await daemon.home.collections.inventory(collection_id))
        inventory = {key: taken[key] for key in inventory}
    return CollectionDetails(**_shown(found, with_profiles=True), **inventory)


@router.patch("/{collection_id}", dependencies=_ADMIN, responses=problems(404, 409, 502, 504))
async def change_collection(
    daemon: TheDaemon, request: Request, collection_id: str, body: CollectionChange
) -> CollectionInfo:
    """Change where a collection comes from, or whether it is used; a new source takes effect at the next sync."""
    given = body.model_dump(exclude_unset=True, exclude_none=True)
    if not given:
        raise RequestRefusedError("there is nothing to change", code="invalid-request")
    note(request, **given)
    return CollectionInfo(**_shown(await daemon.home.collections.update(collection_id, **given), with_profiles=True))


@router.delete("/{collection_id}", status_code=204, dependencies=_ADMIN, responses=problems(404, 409))
async def remove_collection(
    daemon: TheDaemon,
    collection_id: str,
    force: Annotated[bool, Query(description="even if sessions that have not ended use it")] = False,
) -> None:
    """Remove a collection and its profiles from the home; what was fetched stays in the cache."""
    await daemon.home.collections.remove(collection_id, force=force)


@router.post("/{collection_id}/sync", responses={**FETCHING, **problems(404)})
async def sync_collection(
    daemon: TheDaemon, caller: Admin, collection_id: str, body: SyncRequest | None = None, wait: Wait = True
) -> SyncResults:
    """Update one collection from its source."""
    return await _sync(daemon, caller, collection_id, body or SyncRequest(), wait=wait)


async def _sync(
    daemon: TheDaemon, caller: Admin, collection_id: str | None, body: SyncRequest, *, wait: bool
) -> SyncResults:
    collections = daemon.home.collections

    async def work() -> dict[str, Any]:
        known = await asyncio.to_thread(collections.list)
        chosen = [each for each in known if each.enabled and collection_id in (None, each.identifier)]
        daemon.operations.expect("collection", len(chosen))
        found = await collections.sync(
            collection_id and (collection_id,),
            refresh=body.force_refresh,
            check=body.check_only,
            compile=body.auto_compile,
            force_compile=body.force_compile,
        )
        if found and all(each.status == "error" for each in found.values()):
            text = "; ".join(issue.message for each in found.values() for issue in each.errors)
            raise RequestRefusedError(f"nothing could be synced: {text}", code="sync-failed")
        return SyncResults(results={key: SyncInfo(**each.to_dict()) for key, each in found.items()}).model_dump()

    kind = "collection-check" if body.check_only else "collection-sync"
    synced: SyncResults = await operate(daemon.operations, kind, collection_id or "", work, caller=caller, wait=wait)
    return synced


def _shown(collection: Collection, *, with_profiles: bool) -> dict[str, Any]:
    shown = collection.to_dict()
    return shown if with_profiles else {**shown, "profiles": None}
