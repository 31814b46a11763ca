"""Mount plans: generated, converted, explained and compared."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Any

from fastapi import Depends
from pydantic import Field

from amplifierd.exceptions import RequestRefusedError
from amplifierd.plans.conversion import Form
from amplifierd.profiles.builds.build import Build
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Runner, TheDaemon, requires
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import FETCHING, Answer, Body, Wait, operate, problems
from amplifierd.server.http.routers import api_router
from amplifierd.server.profile_edits import checked_profile_id
from amplifierd.sessions.secret_values import masked, without_secrets

router = api_router("/mount-plans", tags=["mount plans"], route_class=IdempotentRoute)

_READ = [Depends(requires("read"))]


class PlanRequest(Body):
    profile_id: str
    form: Form = "portable"
    settings_overrides: dict[str, Any] | None = Field(default=None, description="laid over what the profile says")
    strict: bool = Field(default=False, description="refuse a profile without a context")


class GeneratedPlan(Answer):
    profile_id: str
    form: Form
    build_id: str
    mount_plan: dict[str, Any]
    warnings: list[str]


class ConvertRequest(Body):
    mount_plan: dict[str, Any]
    form: Form
    profile_id: str | None = Field(default=None, description="the profile that the plan was made from")


class ConvertedPlan(Answer):
    mount_plan: dict[str, Any]
    warnings: list[str]


class ExplainRequest(Body):
    profile_id: str
    key: str = Field(min_length=1, max_length=1000, examples=["tools[tool-bash].config.timeout"])
    settings_overrides: dict[str, Any] | None = None


class Origin(Answer):
    profile: str | None = None
    file: str | None = None
    line: int | None = None


class Explanation(Answer):
    """Where a value comes from, and what it overrode, the nearest last."""

    value: Any
    origin: Origin | None
    overrode: list[dict[str, Any]]


class PlanSide(Body):
    """One side of a comparison: a profile, or a plan."""

    profile_id: str | None = None
    mount_plan: dict[str, Any] | None = None


class DiffRequest(Body):
    before: PlanSide
    after: PlanSide


class PlanDifference(Answer):
    added: list[dict[str, Any]]
    removed: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    agents: dict[str, list[str]]
    session: list[dict[str, Any]]
    moved: list[dict[str, Any]]
    text: str = Field(description="the same for a person to read")


@router.post("/generate", status_code=201, responses={**FETCHING, **problems(404)})
async def generate_plan(daemon: TheDaemon, caller: Runner, body: PlanRequest, wait: Wait = True) -> GeneratedPlan:
    """Return the mount plan of a profile, which is compiled first if its build is missing or stale; without keys."""
    home = daemon.home
    profile_id = checked_profile_id(body.profile_id)

    async def work() -> dict[str, Any]:
        await asyncio.to_thread(home.profiles.get, profile_id)
        build = await home.profiles.ensure(profile_id)
        plan = await home.plans.generate(
            build,
            form=body.form,
            overrides=body.settings_overrides,
            overrides_from_elsewhere=True,
            strict=body.strict,
        )
        return {
            "profile_id": str(profile_id),
            "form": body.form,
            "build_id": build.build_id,
            "mount_plan": without_secrets(plan),
            "warnings": list(build.lock.warnings),
        }

    asked = hashlib.sha256(body.model_dump_json().encode()).hexdigest()[:16]  # overrides may have secrets
    target = f"{profile_id} {asked}"
    made: GeneratedPlan = await operate(daemon.operations, "plan-generate", target, work, caller=caller, wait=wait)
    return made


@router.post("/convert", dependencies=_READ, responses=problems(404, 409))
async def convert_plan(daemon: TheDaemon, body: ConvertRequest) -> ConvertedPlan:
    """Return a plan in the other form: with the profile's name for a source, or with directories."""
    build = await _build_of(daemon, body.profile_id) if body.profile_id is not None else None
    plan = await asyncio.to_thread(daemon.home.plans.convert, body.mount_plan, body.form, build=build)
    report = await asyncio.to_thread(daemon.home.plans.validate, plan)
    warnings = [check.message for check in report.warnings]
    return ConvertedPlan(mount_plan=without_secrets(plan), warnings=warnings)


@router.post("/explain", dependencies=_READ, responses=problems(404, 409))
async def explain_plan(daemon: TheDaemon, body: ExplainRequest) -> Explanation:
    """Say which file set a value of a profile's plan, and what it overrode."""
    build = await _build_of(daemon, body.profile_id)
    try:
        found = await daemon.home.plans.explain(build, body.key, overrides=body.settings_overrides)
    except KeyError as error:
        raise RequestRefusedError(f"the plan of {build.profile_id} has no {body.key!r}", code="not-found") from error
    except ValueError as error:
        raise RequestRefusedError(f"{body.key!r} is not a path: {error}", code="invalid-request") from error
    return Explanation(**masked({body.key: found})[body.key])


@router.post("/diff", dependencies=_READ, responses=problems(404, 409))
async def diff_plans(daemon: TheDaemon, body: DiffRequest) -> PlanDifference:
    """Compare two plans, or those of two profiles: modules, versions, configuration, agents, order."""
    before, after = await _side(daemon, body.before), await _side(daemon, body.after)
    builds = (before[1], after[1])
    found = await asyncio.to_thread(daemon.home.plans.diff, before[0], after[0], builds=builds)
    return PlanDifference(**found.to_dict(), text=str(found))


async def _side(daemon: Daemon, side: PlanSide) -> tuple[dict[str, Any], Build | None]:
    if (side.profile_id is None) == (side.mount_plan is None):
        raise RequestRefusedError("each side is a profile_id or a mount_plan", code="invalid-request")
    if side.mount_plan is not None:
        return without_secrets(side.mount_plan), None
    build = await _build_of(daemon, side.profile_id or "")
    return without_secrets(await asyncio.to_thread(build.plan)), build


async def _build_of(daemon: Daemon, text: str) -> Build:
    """Return the build that there is; nothing is compiled for a question."""
    profile_id = await asyncio.to_thread(daemon.profile_edits.identify, text)
    await asyncio.to_thread(daemon.home.profiles.get, profile_id)
    build = await asyncio.to_thread(daemon.home.profiles.find_build, profile_id)
    if build is None:
        hint = f"compile it: POST /api/v1/profiles/{profile_id}/compile"
        raise RequestRefusedError(f"Profile {profile_id} is not compiled", code="not-found", hint=hint)
    return build
