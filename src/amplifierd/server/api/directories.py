"""Directories of this machine: completed for a client, and trusted by the owner."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Literal

from fastapi import Depends, Query, Request, Response
from pydantic import Field

from amplifierd.exceptions import RequestRefusedError
from amplifierd.paths import Paths
from amplifierd.server.http.dependencies import Runner, TheDaemon, note, requires
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import Answer, Body, Page, PageLimit, PageOffset, paged, problems
from amplifierd.server.http.routers import api_router

router = api_router(tags=["directories"], route_class=IdempotentRoute)

_ADMIN = [Depends(requires("admin"))]
_MOST_LOOKED_AT = 10_000


class Entry(Answer):
    name: str
    path: str = Field(description="below the working directory")
    type: Literal["directory", "file"]


class DirectoryPage(Page):
    path: str
    root: str
    entries: list[Entry]


class TrustedPage(Page):
    directories: list[str]


class Directory(Body):
    directory: str = Field(min_length=1, max_length=4096)


@router.get("/directories/list", responses=problems(404))
async def list_directory(
    daemon: TheDaemon,
    caller: Runner,
    path: Annotated[str, Query(max_length=4096, description="counted from the setting `working_dir`")] = "",
    limit: PageLimit = 100,
    offset: PageOffset = 0,
) -> DirectoryPage:
    """List what is in a directory, directories first, for completion; what is hidden is left out.

    A caller that is bound to directories sees the first of them.
    """
    root = Path(caller.roots[0]) if caller.roots else daemon.home.settings.working_dir
    entries = await asyncio.to_thread(_entries, root, path, daemon.home.paths)
    part, facts = paged(entries, limit, offset)
    return DirectoryPage(path=path, root=str(root), entries=list(part), **facts)


@router.get("/trust", dependencies=_ADMIN)
async def list_trusted(daemon: TheDaemon, limit: PageLimit = 100, offset: PageOffset = 0) -> TrustedPage:
    """List the trusted directories."""
    found = [str(each) for each in await asyncio.to_thread(daemon.home.trust.list)]
    part, facts = paged(found, limit, offset)
    return TrustedPage(directories=list(part), **facts)


@router.post("/trust", status_code=204, dependencies=_ADMIN)
async def trust_directory(daemon: TheDaemon, request: Request, body: Directory) -> Response:
    """Trust a directory and everything below it: its settings take effect, and it may be snapshotted."""
    note(request, directory=body.directory)
    await asyncio.to_thread(daemon.home.trust.add, _plain(body.directory))
    return Response(status_code=204)


@router.delete("/trust", status_code=204, dependencies=_ADMIN, responses=problems(404))
async def distrust_directory(
    daemon: TheDaemon, request: Request, directory: Annotated[str, Query(min_length=1, max_length=4096)]
) -> Response:
    """Stop trusting a directory."""
    note(request, directory=directory)
    if not await asyncio.to_thread(daemon.home.trust.remove, _plain(directory)):
        raise RequestRefusedError(f"{directory} is not in the list", code="not-found")
    return Response(status_code=204)


def _plain(text: str) -> Path:
    """Return an absolute path that a person can read."""
    if not text.startswith(("/", "~")) or "\0" in text:
        raise RequestRefusedError("the path of the directory has to be absolute", code="invalid-request")
    return Path(text)


def _entries(root: Path, text: str, paths: Paths) -> list[Entry]:
    if "\0" in text:
        raise RequestRefusedError("this is not a path", code="invalid-request")
    real = Path(os.path.realpath(root))
    place = Path(os.path.realpath(real / text.lstrip("/")))
    is_hidden = any(part.startswith(".") for part in Path(text).parts)
    closed = [Path(os.path.realpath(each)) for each in (paths.home, paths.config, paths.state)]
    if not place.is_relative_to(real) or is_hidden or any(place.is_relative_to(each) for each in closed):
        raise RequestRefusedError("this is not below the working directory", code="forbidden")
    if place == real and not real.exists():
        return []  # it is made with the first session in it
    try:
        found = [each for each in os.scandir(place) if not each.name.startswith(".")][:_MOST_LOOKED_AT]
    except OSError as error:
        raise RequestRefusedError(f"there is no such directory: {text}", code="not-found") from error
    inside = [
        each
        for each in found
        if (led_to := Path(os.path.realpath(each.path))).is_relative_to(real) and led_to not in closed
    ]
    entries = [_entry(each, place.relative_to(real)) for each in inside if _is_text(each.name)]
    return sorted(entries, key=lambda entry: (entry.type, entry.name.lower()))


def _entry(found: os.DirEntry[str], below: Path) -> Entry:
    kind: Literal["directory", "file"] = "directory" if found.is_dir() else "file"
    return Entry(name=found.name, path=str(below / found.name), type=kind)


def _is_text(name: str) -> bool:
    return name == name.encode("utf-8", "replace").decode()
