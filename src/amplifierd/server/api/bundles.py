"""Bundles that are registered by name."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request, Response
from pydantic import Field

from amplifier_foundation.sources import parse_reference
from amplifier_system.urls import shown
from amplifierd.server.bundle_catalogue import add_bundle, list_bundles, remove_bundle
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

router = api_router("/bundles", tags=["bundles"], route_class=IdempotentRoute)


class BundleInfo(Answer):
    """A bundle; `error` says why it cannot be loaded at the moment."""

    name: str
    uri: str
    version: str | None = None
    description: str | None = None
    includes: list[str] = Field(default_factory=list)
    providers: list[str] = Field(default_factory=list)
    tools: list[str] = Field(default_factory=list)
    hooks: list[str] = Field(default_factory=list)
    agents: list[str] = Field(default_factory=list)
    context_files: list[str] = Field(default_factory=list)
    loaded_at: str | None = None
    error: str | None = None


class BundlePage(Page):
    bundles: list[BundleInfo]


class NewBundle(Body):
    uri: str = Field(min_length=1, max_length=2000)
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")] | None = None


@router.get("", dependencies=[Depends(requires("read"))])
async def find_bundles(daemon: TheDaemon, limit: PageLimit = 100, offset: PageOffset = 0) -> BundlePage:
    """List the registered bundles."""
    part, facts = paged(await list_bundles(daemon.home.bundles), limit, offset)
    return BundlePage(bundles=[BundleInfo(**each) for each in part], **facts)


@router.post("", status_code=201, responses={**FETCHING, **problems(404)})
async def register_bundle(
    daemon: TheDaemon, caller: Admin, request: Request, response: Response, body: NewBundle, wait: Wait = True
) -> BundleInfo:
    """Load a bundle with everything it includes, check it, and register it by name."""
    note(request, uri=body.uri, name=body.name)
    parse_reference(body.uri)
    bundles = daemon.home.bundles

    async def work() -> dict[str, Any]:
        return await add_bundle(bundles, body.uri, body.name)

    target = f"{body.name or ''} {shown(body.uri)}".strip()
    added: BundleInfo = await operate(daemon.operations, "bundle-add", target, work, caller=caller, wait=wait)
    response.headers["Location"] = request.url.path
    return added


@router.delete("/{name}", status_code=204, dependencies=[Depends(requires("admin"))], responses=problems(404, 409))
async def forget_bundle(daemon: TheDaemon, name: str) -> None:
    """Unregister a bundle that no session uses; what was fetched stays in the cache."""
    await remove_bundle(daemon.home.bundles, daemon.home.sessions, name)
