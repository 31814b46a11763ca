"""Profiles: listed, read, written, compiled, and the one that is active."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from fastapi import Depends, Header, Path, Query, Request, Response
from fastapi.responses import PlainTextResponse

from amplifierd.exceptions import ProfileNotFoundError, ProfileValidationError, RequestRefusedError, SettingsError
from amplifierd.identifiers import LOCAL, ProfileId, checked_collection_id
from amplifierd.issues import errors
from amplifierd.profiles.builds.profile_catalogue import Profile
from amplifierd.profiles.collections.models import Collection
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Admin, TheDaemon, requires
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import FETCHING, PageLimit, PageOffset, Wait, operate, paged, problems
from amplifierd.server.http.routers import api_router
from amplifierd.server.profile_edits import name_in
from amplifierd.session_defaults import find_active_profile
from amplifierd.sessions.secret_values import masked

from .profile_models import (
    ActiveProfile,
    Compiled,
    CompileRequest,
    CopyRequest,
    ProfileChange,
    ProfileDetails,
    ProfileInfo,
    ProfilePage,
    ProfileText,
    StatusInfo,
    Verdict,
    WholeText,
)

router = api_router("/profiles", tags=["profiles"], route_class=IdempotentRoute)

_READ, _ADMIN = [Depends(requires("read"))], [Depends(requires("admin"))]

Resolved = Annotated[bool, Query(description="with all that it inherits, its ancestors, and which file set each value")]
ProfilePath = Annotated[str, Path(description="`collection/profile`, or `profile` where only one collection has it")]
Raw = Annotated[bool, Query(description="its file, as markdown")]


@router.get("", dependencies=_READ, responses=problems(409))
async def list_profiles(
    daemon: TheDaemon,
    collection: Annotated[str | None, Query(description="only those of a collection")] = None,
    valid: Annotated[bool | None, Query(description="only those that are valid, or that are not")] = None,
    limit: PageLimit = 100,
    offset: PageOffset = 0,
) -> ProfilePage:
    """List the profiles, including invalid ones."""
    if collection is not None:
        checked_collection_id(collection)
    found = await asyncio.to_thread(_list, daemon, collection, valid)
    part, facts = paged(found, limit, offset)
    return ProfilePage(profiles=[ProfileInfo(**each) for each in part], default_id=await _default(daemon), **facts)


@router.post("", status_code=201, dependencies=_ADMIN, responses=problems(409))
async def create_profile(daemon: TheDaemon, request: Request, response: Response, body: ProfileText) -> ProfileDetails:
    """Store a profile of your own, in the collection `local`."""
    profile_id = await asyncio.to_thread(_create, daemon, body)
    response.headers["Location"] = f"{request.url.path}/{profile_id}"
    return await _details(daemon, profile_id)


@router.post("/validate", dependencies=_READ)
async def validate_profile(daemon: TheDaemon, body: ProfileText) -> Verdict:
    """Check the text of a profile that is not stored, together with its ancestors."""
    text = body.text()
    issues = await asyncio.to_thread(daemon.home.profiles.validate, text if text.startswith("---") else f"\n{text}")
    return Verdict(valid=not errors(issues), issues=[issue.to_dict() for issue in issues])


@router.get("/active", dependencies=_READ, responses=problems(404))
async def get_active_profile(daemon: TheDaemon) -> ProfileDetails | None:
    """Show the default profile of new sessions; null if none was chosen."""
    active = await asyncio.to_thread(find_active_profile, daemon.home.paths)
    return None if active is None else await _details(daemon, active)


@router.put("/active", dependencies=_ADMIN, responses=problems(404, 409))
async def activate_profile(daemon: TheDaemon, body: ActiveProfile) -> ProfileDetails:
    """Choose the default profile of new sessions."""
    edits = daemon.profile_edits
    profile_id = await asyncio.to_thread(edits.identify, body.profile_id)
    await asyncio.to_thread(edits.activate, profile_id)
    return await _details(daemon, profile_id)


@router.delete("/active", status_code=204, dependencies=_ADMIN)
async def deactivate_profile(daemon: TheDaemon) -> None:
    """Clear the choice: sessions that name no profile use the one in the settings."""
    await asyncio.to_thread(daemon.profile_edits.deactivate)


MARKDOWN: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/markdown": {"schema": {"type": "string"}}}, "description": "The profile"}
}


@router.post("/{profile_id:path}/copy", status_code=201, dependencies=_ADMIN, responses=problems(404, 409))
async def copy_profile(
    daemon: TheDaemon, response: Response, profile_id: ProfilePath, body: CopyRequest
) -> ProfileDetails:
    """Copy any profile into your own."""
    origin = await _identified(daemon, profile_id)
    await daemon.home.profiles.ensure_extracted(origin)
    copied = await asyncio.to_thread(daemon.profile_edits.copy, origin, body.new_name)
    response.headers["Location"] = f"/api/v1/profiles/{copied}"
    return await _details(daemon, copied)


@router.post("/{profile_id:path}/compile", responses={**FETCHING, **problems(404)})
async def compile_profile(
    daemon: TheDaemon, caller: Admin, profile_id: ProfilePath, body: CompileRequest | None = None, wait: Wait = True
) -> Compiled:
    """Compile a profile, unless its build is up to date."""
    known, profiles = await _identified(daemon, profile_id), daemon.home.profiles

    async def work() -> dict[str, Any]:
        before = await asyncio.to_thread(profiles.find_build, known)
        build = await profiles.compile(known, force=bool(body and body.force))
        status = "unchanged" if before is not None and before.build_id == build.build_id else "compiled"
        facts = {"degraded": list(build.lock.degraded), "warnings": list(build.lock.warnings)}
        return {"status": status, "profile_id": str(known), "build_id": build.build_id, **facts}

    built: Compiled = await operate(daemon.operations, "profile-compile", str(known), work, caller=caller, wait=wait)
    return built


@router.get("/{profile_id:path}/status", dependencies=_READ, responses=problems(404, 409, 502, 504))
async def get_profile_status(
    daemon: TheDaemon,
    profile_id: ProfilePath,
    check_remote: Annotated[bool, Query(description="ask the sources of its collection what moved")] = False,
) -> StatusInfo:
    """Show the state of a profile's build, and what compiling would do."""
    known = await _identified(daemon, profile_id)
    found = await daemon.home.profiles.status(known)
    lock = await asyncio.to_thread(daemon.home.profiles.read_lock, known)
    moved = await _moved(daemon, known) if check_remote else None
    generated_at = lock.data.get("generated_at") if lock else None
    return StatusInfo(**found.to_dict(), generated_at=generated_at, moved=moved)


@router.get("/{profile_id:path}/lock", dependencies=_READ, responses=problems(404, 409))
async def get_profile_lock(daemon: TheDaemon, profile_id: ProfilePath) -> dict[str, Any]:
    """Show what a profile's build was made of, to the commit."""
    known = await _identified(daemon, profile_id)
    lock = await asyncio.to_thread(daemon.home.profiles.read_lock, known)
    if lock is None:
        raise ProfileNotFoundError(f"Profile {known} is not compiled", hint="compile it")
    return dict(lock.data)


@router.get(
    "/{profile_id:path}",
    dependencies=_READ,
    response_model=ProfileDetails,
    responses={**MARKDOWN, **problems(404, 409)},
)
async def get_profile(daemon: TheDaemon, profile_id: ProfilePath, resolved: Resolved = False, raw: Raw = False) -> Any:
    """Show a profile: as written, with everything it inherits, or its file."""
    known = await _identified(daemon, profile_id)
    if not raw:
        return await _details(daemon, known, resolved=resolved)
    if known.collection != LOCAL:
        await daemon.home.profiles.ensure_extracted(known)
    text, version = await asyncio.to_thread(daemon.profile_edits.text, known)
    return PlainTextResponse(text, media_type="text/markdown", headers={"ETag": f'"{version}"'})


@router.put("/{profile_id:path}", dependencies=_ADMIN, responses=problems(404, 409))
async def replace_profile(
    daemon: TheDaemon,
    profile_id: ProfilePath,
    body: WholeText,
    if_match: Annotated[str | None, Header(description="the `ETag` of `raw=true`: only over that text")] = None,
) -> ProfileDetails:
    """Replace the text of a profile of your own; an invalid one is refused, and nothing changes."""
    known = await _identified(daemon, profile_id)
    replaces = if_match.strip().removeprefix("W/").strip('"') if if_match else None
    await asyncio.to_thread(daemon.profile_edits.replace, known, body.markdown, replaces=replaces)
    return await _details(daemon, known)


@router.patch("/{profile_id:path}", dependencies=_ADMIN, responses=problems(404, 409))
async def change_profile(daemon: TheDaemon, profile_id: ProfilePath, body: ProfileChange) -> ProfileDetails:
    """Change a profile of your own; comments in its file are kept."""
    known = await _identified(daemon, profile_id)
    changes = body.model_dump(exclude_unset=True)
    await asyncio.to_thread(daemon.profile_edits.change, known, changes)
    return await _details(daemon, known)


@router.delete("/{profile_id:path}", status_code=204, dependencies=_ADMIN, responses=problems(404, 409))
async def delete_profile(daemon: TheDaemon, profile_id: ProfilePath) -> None:
    """Delete a profile of your own that is neither active nor in use."""
    known = await _identified(daemon, profile_id)
    await asyncio.to_thread(daemon.profile_edits.delete, known)


async def _moved(daemon: Daemon, profile_id: ProfileId) -> list[str]:
    results = await daemon.home.collections.sync((profile_id.collection,), check=True)
    if wrong := [issue.message for result in results.values() if result.status == "error" for issue in result.errors]:
        raise RequestRefusedError(f"the sources cannot be asked: {'; '.join(wrong)}", code="sync-failed")
    return [key for key, result in results.items() if result.status == "updated"]


async def _identified(daemon: Daemon, text: str) -> ProfileId:
    return await asyncio.to_thread(daemon.profile_edits.identify, text)


async def _details(daemon: Daemon, profile_id: ProfileId, *, resolved: bool = False) -> ProfileDetails:
    await daemon.home.profiles.ensure_extracted(profile_id)
    return await asyncio.to_thread(_describe, daemon, profile_id, resolved=resolved)


def _describe(daemon: Daemon, profile_id: ProfileId, *, resolved: bool) -> ProfileDetails:
    profiles = daemon.home.profiles
    profile = profiles.get(profile_id)
    statuses = _statuses([daemon.home.collections.get(profile_id.collection)])
    info = _info(profile, find_active_profile(daemon.home.paths), statuses)
    merged = profiles.merged(profile_id)
    if not resolved:
        return ProfileDetails(**{**masked(merged.document.sections), **info, "instruction": merged.document.body})
    chain = [str(each.profile_id) for each in (*merged.ancestors, merged.document)]
    provenance = {key: merged.explain(key) for key in merged.sections}
    data = {
        "instruction": merged.body,
        "inheritance_chain": chain,
        "provenance": masked(
            {key: {"origin": each["origin"], "overrode": each["overrode"]} for key, each in provenance.items()}
        ),
    }
    return ProfileDetails(**{**masked(merged.sections), **info, **data})


def _create(daemon: Daemon, body: ProfileText) -> ProfileId:
    text = body.text()
    return daemon.profile_edits.create(body.name or name_in(text), text)


async def _default(daemon: Daemon) -> str | None:
    try:
        return await daemon.home.sessions.default_profile()
    except (ProfileNotFoundError, ProfileValidationError, SettingsError):
        return None  # starting a session without a profile says what is wrong


def _list(daemon: Daemon, collection: str | None, valid: bool | None) -> list[dict[str, Any]]:
    active = find_active_profile(daemon.home.paths)
    found = [
        profile
        for profile in daemon.home.profiles.list()
        if collection in (None, profile.profile_id.collection) and valid in (None, profile.valid)
    ]
    statuses = _statuses(daemon.home.collections.list())
    return [_info(profile, active, statuses) for profile in found]


def _statuses(collections: Iterable[Collection]) -> dict[str, str]:
    """Return the status of each profile as far as its lock tells it."""
    return {f"{each.identifier}/{one.name}": one.status for each in collections for one in each.profiles}


def _info(profile: Profile, active: ProfileId | None, statuses: Mapping[str, str]) -> dict[str, Any]:
    known = profile.profile_id
    return {
        "id": str(known),
        "name": known.name,
        "collection_id": known.collection,
        "version": profile.version,
        "description": profile.description,
        "source": str(profile.path),
        "extends": profile.extends,
        "is_active": known == active,
        "is_local": known.collection == LOCAL,
        "is_compiled": profile.is_compiled,
        "valid": profile.valid,
        "status": statuses.get(str(known), "missing") if profile.valid else "invalid",
        "issues": [issue.to_dict() for issue in profile.issues],
        "ui": dict(profile.ui or {}),
    }
