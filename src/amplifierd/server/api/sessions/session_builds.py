"""The build that a session runs with: its lock, where each value comes from, and what the newest build would change."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from pydantic import Field

from amplifier_core.boundary import Boundary
from amplifierd.exceptions import RequestRefusedError
from amplifierd.plans.composition import Composition
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.origins import single_values
from amplifierd.server.api.plans import Explanation, PlanDifference
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Reader, TheDaemon
from amplifierd.server.http.models import Answer, SessionId
from amplifierd.server.http.routers import api_router
from amplifierd.sessions.secret_values import masked, without_secrets
from amplifierd.store.record import SessionRecord

logger = logging.getLogger(__name__)

router = api_router("/sessions/{session_id}", tags=["sessions"])


class ExplainedValue(Explanation):
    key: str = Field(examples=["tools[tool-bash].config.timeout"])


class ExplainedPlan(Answer):
    """Every single value of a session's plan. Without a build or bundle, they were all set by the session's creator."""

    session_id: str
    build_id: str | None
    values: list[ExplainedValue]
    notes: list[str] = Field(default=[], description="what of a bundle's plan came from where, and what did not count")


class NewestBuild(Answer):
    """The newest build of a session's profile; `status` says whether a compile would make a newer one."""

    session_id: str
    profile_id: str
    build_id: str | None
    newest_build_id: str | None
    is_newest: bool
    status: str
    reasons: list[dict[str, Any]]
    difference: PlanDifference | None = Field(description="what the newest build would change, null if it is the same")
    is_told_otherwise: bool = Field(description="whether the newest build has another instruction")


@router.get("/lock")
async def get_session_lock(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> dict[str, Any]:
    """Show what the build of a session was made of, to the commit."""
    record = await daemon.access.get(caller, session_id)
    build = await _build_of(daemon, record)
    if build is None:
        raise RequestRefusedError(f"Session {session_id} has no build", code="not-found")
    return dict(build.lock.data)


@router.get("/explain")
async def explain_session(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> ExplainedPlan:
    """Say which file set each value of a session's plan, and what it overrode."""
    record = await daemon.access.get(caller, session_id)
    build, notes = await _build_of(daemon, record), list[str]()
    plan = {} if build is not None else await daemon.home.sessions.reader.plan(session_id)
    found: dict[str, Any]
    if (composition := await _composition_of(daemon, record)) is not None:
        found, notes = await asyncio.to_thread(composition.explain_all, plan), composition.notes
    elif build is None:
        found = {key: {"value": value, "origin": None, "overrode": []} for key, value in single_values(plan).items()}
    else:
        found = await daemon.home.plans.explain_all(build, overrides=record.settings_overrides)
    values = [ExplainedValue(key=key, **explained) for key, explained in masked(found).items()]
    build_id = build.build_id if build else None
    return ExplainedPlan(session_id=session_id, build_id=build_id, values=values, notes=notes)


@router.get("/newest-build")
async def compare_with_newest(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> NewestBuild:
    """Show what the newest build of its profile would change in a session; compiles nothing."""
    record = await daemon.access.get(caller, session_id)
    if record.profile_name is None:
        raise RequestRefusedError(f"Session {session_id} does not run a profile", code="not-found")
    home = daemon.home
    status = (await home.profiles.status(record.profile_name)).to_dict()
    newest = await asyncio.to_thread(home.profiles.find_build, record.profile_name)
    is_newest = newest is not None and newest.build_id == record.build_id
    own = await _build_of(daemon, record)
    lines = [await asyncio.to_thread(build.instruction) for build in (newest, own) if build is not None]
    is_told_otherwise = len({*lines}) == 2
    return NewestBuild(
        session_id=session_id,
        profile_id=record.profile_name,
        build_id=record.build_id,
        newest_build_id=newest.build_id if newest else None,
        is_newest=is_newest,
        status=status["status"],
        reasons=status["reasons"],
        difference=None if newest is None or is_newest else await _difference(daemon, record, own, newest),
        is_told_otherwise=is_told_otherwise,
    )


async def _difference(daemon: Daemon, record: SessionRecord, own: Build | None, newest: Build) -> PlanDifference:
    plans, overrides, is_foreign = daemon.home.plans, record.settings_overrides, not record.own_overrides
    if own is None:
        before = await daemon.home.sessions.reader.plan(record.session_id)
    else:
        before = await plans.generate(own, overrides=overrides, overrides_from_elsewhere=is_foreign)
    after = await plans.generate(newest, overrides=overrides, overrides_from_elsewhere=is_foreign)
    sides = (without_secrets(before), without_secrets(after))
    found = await asyncio.to_thread(plans.diff, *sides, builds=(own, newest))
    return PlanDifference(**found.to_dict(), text=str(found))


async def _composition_of(daemon: Daemon, record: SessionRecord) -> Composition | None:
    """Return how the plan of a bundle's session was put together, None for others and for a bundle that is gone."""
    if record.bundle is None:
        return None
    setups = daemon.home.sessions.runtime.setups
    with Boundary(logger, "the bundle of session %s cannot be explained: %s", record.session_id):
        return await setups.composition(record.bundle, record.base_profile, record.build_id)
    return None


async def _build_of(daemon: Daemon, record: SessionRecord) -> Build | None:
    """Return the build that a session runs with, None when it has none or that is gone."""
    if record.profile_name is None or record.build_id is None:
        return None
    return await asyncio.to_thread(daemon.home.profiles.find_build, record.profile_name, record.build_id)
