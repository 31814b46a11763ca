"""Sessions: made, listed, shown, changed, started, resumed and removed."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Query, Response
from pydantic import AfterValidator, Field

from amplifier_sessions.session_query import SORT_FIELDS, matches
from amplifier_system.permission_levels import PermissionLevel
from amplifier_system.threads import in_thread
from amplifierd.exceptions import ForbiddenError, RefResolutionError, RequestRefusedError
from amplifierd.limits import Limits
from amplifierd.plans.conversion import Form
from amplifierd.plans.session_policy import narrowed_plan
from amplifierd.server.auth.callers import Caller
from amplifierd.server.bundle_catalogue import check_address
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Admin, Reader, Runner, TheDaemon
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import (
    LOADING,
    Answer,
    Body,
    PageLimit,
    PageOffset,
    SessionId,
    SessionInfo,
    SessionPage,
    all_shown,
    page_facts,
    problems,
    shown,
)
from amplifierd.server.http.routers import api_router
from amplifierd.server.profile_edits import checked_profile_id
from amplifierd.session_defaults import user_choice
from amplifierd.sessions.working_place import unfit_working_dir
from amplifierd.store.protocol import SessionQuery
from amplifierd.store.record import (
    Activity,
    OnTakeover,
    SessionRecord,
    SessionState,
    WorkingDirScope,
    checked_session_id,
    new_session_id,
    state_conflict,
    stored_time,
)
from amplifierd.workers.live_sessions import LoadedState

router = api_router("/sessions", tags=["sessions"], route_class=IdempotentRoute)

Name = Annotated[str, Field(max_length=200)]


def _in_utc(moment: datetime) -> datetime:
    """Return a moment in UTC, in which one without a zone is given.

    Raises:
        ValueError: it is so early or late that there it has no date.
    """
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("there is no such moment in UTC") from None


Since = Annotated[datetime, AfterValidator(_in_utc)]
Sort = Annotated[str, Query(pattern=f"^-?({'|'.join(SORT_FIELDS)})$", description="a field; with `-` the last first")]


class NewSession(Body):
    """What a session is to be; at most one of `profile_name`, `bundle_name`, `bundle_uri` and `mount_plan`."""

    profile_name: str | None = None
    bundle_name: str | None = None
    bundle_uri: str | None = None
    base_profile: str | None = Field(
        default=None, description="the profile that the bundle runs over; by default the one of new sessions"
    )
    mount_plan: dict[str, Any] | None = None
    working_dir: str | None = None
    working_dir_scope: WorkingDirScope | None = Field(
        default=None, description="which machines have it; else shared below a path that machines share, or host"
    )
    session_id: str | None = None
    parent_session_id: str | None = Field(default=None, description="a session that this one belongs to")
    name: Name | None = None
    settings_overrides: dict[str, Any] | None = None
    mount_plan_form: Form = "portable"
    metadata: dict[str, Any] = Field(default_factory=dict)
    tags: list[str] = Field(default_factory=list)
    limits: Limits | None = None
    on_takeover: OnTakeover | None = Field(
        default=None, description="what follows a turn that ended with the process that ran it; else what is set"
    )
    permission_level: PermissionLevel | None = Field(
        default=None, description="what it may do without asking; else what its profile says"
    )
    start: bool = True
    load: bool = Field(default=False, description="load its modules, and fail if one that it needs is broken")


class SessionChange(Body):
    """What is to change. Keys of `metadata` are changed one by one, null removes one; `status` ends the session."""

    name: Name | None = None
    working_dir: str = Field(default="", min_length=1)
    working_dir_scope: WorkingDirScope | None = None
    metadata: dict[str, Any] | None = None
    tags: list[str] = Field(default_factory=list)
    limits: Limits | None = None
    on_takeover: OnTakeover = "ask"
    permission_level: PermissionLevel | None = None
    status: Literal["completed", "failed", "terminated"] | None = None
    error_message: str | None = None
    error_details: dict[str, Any] | None = None


class UnreadKey(Answer):
    """A key in the configuration of a module that it does not know, and those that it does."""

    module_id: str
    key: str
    known: list[str]


class LoadedSession(SessionInfo):
    """A session, and what was found when its modules were loaded."""

    unread_keys: list[UnreadKey] = Field(default_factory=list)


class ResumedSession(LoadedSession):
    """`repaired` says that a crash had interrupted a turn, whose end was made up for when the session was loaded."""

    resumed: bool = True
    repaired: bool = False


class Hit(Answer):
    """A session in which the words were found, and the first place."""

    session: SessionInfo
    snippet: str
    message_id: str | None = None
    turn: int | None = None


class Hits(Answer):
    hits: list[Hit]
    total: int


class Cleanup(Body):
    older_than_days: Annotated[float, Field(ge=0, le=36_500)] | None = 30
    dry_run: bool = False


class Removed(Answer):
    removed_count: int
    removed: list[str]


@router.post("", status_code=201, responses={**LOADING, **problems(404)})
async def create_session(
    daemon: TheDaemon, caller: Runner, response: Response, body: NewSession | None = None
) -> LoadedSession:
    """Create a session; without a profile, a bundle or a plan it gets the default profile."""
    body = body or NewSession()
    if daemon.phase != "ready":
        await daemon.be_ready()
    bundle = body.bundle_name or body.bundle_uri
    if sum(given is not None for given in (body.profile_name, body.bundle_name, body.bundle_uri, body.mount_plan)) > 1:
        raise RequestRefusedError("a session has one source: a profile, a bundle or a plan", code="invalid-request")
    if body.bundle_name is not None and daemon.home.bundles.get_state(body.bundle_name) is None:
        raise RequestRefusedError(
            f"Bundle not found: {body.bundle_name}", code="bundle-not-found", hint="list the bundles"
        )
    check_address(daemon.home.bundles, body.bundle_uri, caller, daemon.home.settings.security)
    if body.parent_session_id is not None:
        await daemon.access.get(caller, body.parent_session_id)
    directory, plan = _fit_directory(daemon, caller, body.working_dir), body.mount_plan
    if plan is not None:
        at_work = Path(directory or daemon.home.settings.working_dir)
        plan = narrowed_plan(plan, paths=daemon.home.paths, working_dir=at_work)
    session_id = checked_session_id(body.session_id) if body.session_id else new_session_id()
    if not body.session_id:
        daemon.access.remember(session_id, caller.owner)
    try:
        record = await daemon.home.sessions.create(
            body.profile_name and checked_profile_id(body.profile_name),
            bundle=bundle,
            base_profile=body.base_profile and checked_profile_id(body.base_profile),
            plan=plan,
            working_dir=directory,
            working_dir_scope=body.working_dir_scope,
            session_id=session_id,
            name=body.name,
            overrides=await _overrides(daemon, body),
            overrides_from_elsewhere=True,
            form=body.mount_plan_form,
            limits=(body.limits or Limits()).within(caller.limits or Limits()),
            on_takeover=body.on_takeover,
            metadata=body.metadata,
            tags=body.tags,
            owner=caller.owner,
            start=body.start,
            parent_session_id=body.parent_session_id,
            permission_level=body.permission_level,
        )
    except RefResolutionError as error:
        if error.reason != "not-found" or error.ref != body.bundle_uri:
            raise
        raise RequestRefusedError(error.message, code="bundle-not-found", hint=error.hint) from error
    daemon.access.remember(session_id, caller.owner)
    loaded = LoadedState()
    if body.load:
        loaded = await _load_or_leave_nothing(daemon, record)
        record = await daemon.home.sessions.runtime.store.read(record.session_id)
    response.headers["Location"] = f"/api/v1/sessions/{record.session_id}"
    return LoadedSession(**shown(daemon, record).model_dump(), unread_keys=_unread(loaded))


async def _overrides(daemon: Daemon, body: NewSession) -> dict[str, Any] | None:
    """Return what changes a profile: what is given, else what the user prefers, where the profile has it."""
    home = daemon.home
    is_of_profile = not (body.mount_plan or body.bundle_name or body.bundle_uri)
    if body.settings_overrides is not None or not is_of_profile:
        return body.settings_overrides
    choice = await in_thread(lambda stop: user_choice(home.paths))
    if not choice.told():
        return None
    profile = body.profile_name and checked_profile_id(body.profile_name)
    build = await home.profiles.ensure(profile or await home.sessions.default_profile())
    plan = build.plan()
    return choice.preferred_in(plan).overrides(plan, os.environ, home.keys.find) or None


def _fit_directory(daemon: Daemon, caller: Caller, given: str | None) -> str | None:
    """Return where a session of this caller works, None for the directory that is set.

    A caller with roots that names no directory works in the first of them.
    """
    given = caller.roots[0] if given is None and caller.roots else given
    directory = str(daemon.home.settings.working_dir) if given is None else given
    if not caller.reaches(directory):
        hint = f"choose a directory in or below {', '.join(caller.roots)}"
        raise ForbiddenError(f"{caller.name!r} may not work in {directory}", hint=hint)
    if reason := unfit_working_dir(directory, daemon.home.paths):
        hint = "choose the directory of a project"
        raise ForbiddenError(f"no session works in {directory}: {reason}", hint=hint)
    return given


async def _load_or_leave_nothing(daemon: Daemon, record: SessionRecord) -> LoadedState:
    try:
        return await daemon.live.load(record.session_id)
    except BaseException:
        await daemon.live.acts.delete(record.session_id, force=True, forever=True)
        raise


def _unread(loaded: LoadedState) -> list[UnreadKey]:
    return [UnreadKey.model_validate(key) for key in loaded.unread_keys]


@router.get("")
async def list_sessions(
    daemon: TheDaemon,
    caller: Reader,
    status: SessionState | None = None,
    activity: Activity | None = None,
    profile_name: str | None = None,
    bundle: str | None = None,
    working_dir: str | None = None,
    parent_session_id: str | None = None,
    tag: str | None = None,
    since: Annotated[Since | None, Query(description="the earliest last activity; UTC unless it names a zone")] = None,
    q: Annotated[str | None, Query(description="words in its name or messages")] = None,
    roots_only: bool = False,
    sort: Sort = "-created_at",
    limit: PageLimit = 100,
    offset: PageOffset = 0,
) -> SessionPage:
    """List sessions: your own, or all for an admin."""
    if parent_session_id is not None:
        checked_session_id(parent_session_id)
    query = SessionQuery(
        status=status,
        profile_name=None if profile_name is None else str(checked_profile_id(profile_name)),
        bundle=bundle,
        working_dir=working_dir,
        parent_session_id=parent_session_id,
        owner=None if caller.scope == "admin" else caller.owner,
        tag=tag,
        since=None if since is None else stored_time(since),
        text=q,
        roots_only=roots_only,
        sort=sort,
        limit=limit,
        offset=offset,
    )
    if activity is not None:
        records = await _at_work(daemon, activity, query)
        part = records[offset : offset + limit]
        return SessionPage(sessions=await all_shown(daemon, part), **page_facts(len(records), len(part), limit, offset))
    page = await daemon.home.sessions.reader.list(query)
    facts = page_facts(page.total, len(page.sessions), limit, offset)
    return SessionPage(sessions=await all_shown(daemon, page.sessions), **facts)


async def _at_work(daemon: Daemon, activity: Activity, query: SessionQuery) -> list[SessionRecord]:
    """Return the loaded sessions that do something; only these have an activity."""
    elsewhere = (await daemon.elsewhere.states.all()).values() if daemon.elsewhere is not None else ()
    ids = sorted({state.session_id for state in (*daemon.live.states(), *elsewhere) if state.activity == activity})
    return [record for record in await daemon.access.existing(ids) if matches(record, query)]


@router.get("/search")
async def search_sessions(
    daemon: TheDaemon,
    caller: Reader,
    q: Annotated[str, Query(min_length=1, max_length=1000)],
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Hits:
    """Search the names and messages of sessions; each hit shows the first match."""
    owner = None if caller.scope == "admin" else caller.owner
    found = await daemon.home.sessions.runtime.store.search(q, limit=limit, owner=owner)
    sessions = await all_shown(daemon, [hit.record for hit in found])
    hits = [
        Hit(session=session, snippet=hit.snippet, message_id=hit.message_id, turn=hit.turn)
        for session, hit in zip(sessions, found, strict=True)
    ]
    return Hits(hits=hits, total=len(hits))


@router.post("/cleanup")
async def clean_up(daemon: TheDaemon, caller: Admin, body: Cleanup | None = None) -> Removed:
    """Permanently remove sessions that ended long ago."""
    body = body or Cleanup()
    removed = await daemon.home.sessions.cleanup(body.older_than_days, dry_run=body.dry_run)
    return Removed(removed_count=len(removed), removed=[*removed])


@router.get("/{session_id}")
async def get_session(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> SessionInfo:
    """Show a session."""
    return shown(daemon, await daemon.access.get(caller, session_id))


@router.patch("/{session_id}")
async def change_session(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: SessionChange) -> SessionInfo:
    """Change a session's record, or end it."""
    record = await daemon.access.get(caller, session_id)
    given = body.model_dump(exclude_unset=True)
    details = {name: given.pop(name) for name in ("error_message", "error_details") if name in given}
    status = given.pop("status", None)
    if details and status != "failed":
        raise RequestRefusedError("only a failed session has an error", code="invalid-request")
    if "metadata" in given:
        given["annotations"] = given.pop("metadata") or {}
    if "working_dir" in given:
        given["working_dir"] = _fit_directory(daemon, caller, body.working_dir)
    if "limits" in given:
        given["limits"] = (body.limits or Limits()).within(caller.limits or Limits()).to_json()
    if given:
        record = await daemon.live.acts.update(session_id, **given)
    if status is not None:
        record = await daemon.live.acts.end(session_id, status=status, **details)
    return shown(daemon, record)


@router.delete("/{session_id}", status_code=204)
async def delete_session(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, force: bool = False, forever: bool = False
) -> None:
    """Move a session and everything below it to the trash, or remove it `forever`; `force` while it executes."""
    await daemon.access.get(caller, session_id)
    await daemon.live.acts.delete(session_id, force=force, forever=forever)


@router.post("/{session_id}/start", status_code=204, responses=LOADING)
async def start_session(daemon: TheDaemon, caller: Runner, session_id: SessionId) -> None:
    """Start a session that was created with `start: false`."""
    record = await daemon.access.get(caller, session_id)
    if record.status == "created":
        await daemon.live.load(session_id)
    elif record.status != "active":
        raise state_conflict(session_id, record.status, "be started")


@router.post("/{session_id}/resume", responses=LOADING)
async def resume_session(
    daemon: TheDaemon,
    caller: Runner,
    session_id: SessionId,
    take_over: Annotated[bool, Query(description="take it from another program that holds it")] = False,
) -> ResumedSession:
    """Load a session, and make it active again if it had ended."""
    if (await daemon.access.get(caller, session_id)).status == "created":
        raise state_conflict(session_id, "created", "be resumed")
    if take_over and daemon.live.state(session_id) is None:
        await daemon.home.sessions.free(session_id)
    loaded = await daemon.live.load(session_id)
    record = await daemon.home.sessions.runtime.store.read(session_id)
    known = shown(daemon, record).model_dump()
    return ResumedSession(**known, repaired=loaded.is_repaired, unread_keys=_unread(loaded))
