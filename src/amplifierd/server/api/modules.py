"""Modules: those that profiles were compiled with, and those that are installed."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import Depends, Query
from pydantic import Field

from amplifierd.identifiers import ProfileId
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import TheDaemon, requires
from amplifierd.server.http.models import Answer, Page, PageLimit, PageOffset, paged, problems
from amplifierd.server.http.routers import api_router
from amplifierd.server.module_catalogue import ModuleCatalogue

router = api_router("/modules", tags=["modules"], dependencies=[Depends(requires("read"))])

ModuleType = Literal["orchestrator", "context", "provider", "tool", "hook"]
Plural = Literal["orchestrators", "contexts", "providers", "tools", "hooks"]
ProfileQuery = Annotated[str | None, Query(description="only those of a profile")]


class ModuleInfo(Answer):
    """A module in one version."""

    id: str
    type: str
    mount_type: str
    package: str
    version: str | None = None
    profiles: list[str]
    source: str
    description: str


class ModuleDetails(ModuleInfo):
    config_schema: dict[str, Any] | None = Field(default=None, description="null where the module declares none")
    location: str | None = Field(default=None, description="below the home's share directory")
    requirements: list[str]


class ModulePage(Page):
    modules: list[ModuleInfo]


@router.get("", responses=problems(404, 409))
async def find_modules(
    daemon: TheDaemon,
    type: Annotated[ModuleType | None, Query(description="only those of a type")] = None,
    profile: ProfileQuery = None,
    limit: PageLimit = 100,
    offset: PageOffset = 0,
) -> ModulePage:
    """List modules; two versions of one module are listed separately."""
    return await _page(daemon, type, profile, limit, offset)


def _add_plural(plural: Plural) -> None:
    @router.get(f"/{plural}", name=f"list_{plural}", responses=problems(404, 409))
    async def list_plural(
        daemon: TheDaemon, profile: ProfileQuery = None, limit: PageLimit = 100, offset: PageOffset = 0
    ) -> ModulePage:
        """List the modules of one type."""
        return await _page(daemon, plural.removesuffix("s"), profile, limit, offset)


for _plural in ("orchestrators", "contexts", "providers", "tools", "hooks"):
    _add_plural(_plural)


@router.get("/{module_id}", responses=problems(404, 409))
async def show_module(daemon: TheDaemon, module_id: str, profile: ProfileQuery = None) -> ModuleDetails:
    """Show a module: the one of a profile, else the installed one, else any."""
    wanted = await _profile(daemon, profile)
    return ModuleDetails.model_validate(await asyncio.to_thread(_catalogue(daemon).get, module_id, profile=wanted))


async def _page(daemon: Daemon, module_type: str | None, profile: str | None, limit: int, offset: int) -> ModulePage:
    wanted = await _profile(daemon, profile)
    found = await asyncio.to_thread(_catalogue(daemon).list, module_type=module_type, profile=wanted)
    part, facts = paged(found, limit, offset)
    return ModulePage(modules=[ModuleInfo.model_validate(each) for each in part], **facts)


async def _profile(daemon: Daemon, text: str | None) -> ProfileId | None:
    if text is None:
        return None
    profile_id = await asyncio.to_thread(daemon.profile_edits.identify, text)
    await asyncio.to_thread(daemon.home.profiles.get, profile_id)
    return profile_id


def _catalogue(daemon: Daemon) -> ModuleCatalogue:
    home = daemon.home
    return ModuleCatalogue(home.collections, home.profiles, home.paths.share)
