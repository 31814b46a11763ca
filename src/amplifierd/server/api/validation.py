"""Checks of plans, modules and bundles: the real ones, before anything runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from fastapi import Depends, Request
from pydantic import Field

from amplifier_foundation.exceptions import BundleError
from amplifier_foundation.sources import parse_reference
from amplifier_foundation.validator import BundleValidator
from amplifierd.exceptions import RequestRefusedError
from amplifierd.identifiers import is_module_id
from amplifierd.plans.validation import PlanCheck
from amplifierd.profiles.builds.installed_modules import installed_modules
from amplifierd.profiles.bundles import open_bundles
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Admin, TheDaemon, note, requires
from amplifierd.server.http.models import Answer, Body, problems
from amplifierd.server.http.routers import api_router
from amplifierd.server.module_validation import validate_in_process

router = api_router("/validate", tags=["validation"])


class PlanBody(Body):
    mount_plan: Any = Field(description="a plan of either form; what is not one is reported as such")


class PlanCheckInfo(Answer):
    name: str
    message: str
    location: str
    severity: Literal["info", "warning", "error"]


class PlanVerdict(Answer):
    valid: bool
    passed: bool
    errors: list[PlanCheckInfo]
    warnings: list[PlanCheckInfo]
    checks: list[PlanCheckInfo]


class ModuleBody(Body):
    module_id: str
    type: Literal["orchestrator", "context", "provider", "tool", "hook"] | None = None
    source: str | None = Field(default=None, description="where it comes from; by default the installed one is checked")
    config: dict[str, Any] | None = None


class BundleBody(Body):
    source: str = Field(min_length=1, max_length=2000)


class Check(Answer):
    check: str
    passed: bool
    message: str


class Verdict(Answer):
    valid: bool
    checks: list[Check]


@router.post("/mount-plan", dependencies=[Depends(requires("read"))])
async def validate_plan(daemon: TheDaemon, body: PlanBody) -> PlanVerdict:
    """Check a plan and its sources; responds with 200 whether it passes or not."""
    report = await asyncio.to_thread(daemon.home.plans.validate, body.mount_plan)
    return PlanVerdict(
        valid=report.passed,
        passed=report.passed,
        errors=_shown(report.errors),
        warnings=_shown(report.warnings),
        checks=_shown(report.checks),
    )


@router.post("/module", responses=problems(404, 502, 504))
async def validate_module(daemon: TheDaemon, caller: Admin, request: Request, body: ModuleBody) -> Verdict:
    """Import and mount a module in a process of its own, and check it against the contract of its type.

    The code of the module runs, with the daemon's rights but none of its keys.
    """
    note(request, by=caller.name, module_id=body.module_id, source=body.source)
    if not is_module_id(body.module_id):
        raise RequestRefusedError(f"{body.module_id!r} is not the id of a module", code="invalid-identifier")
    path = await _find(daemon, body)
    found = await validate_in_process(path, body.module_id, body.type, body.config)
    checks = [Check(check=each["name"], passed=each["passed"], message=each["message"]) for each in found["checks"]]
    return Verdict(valid=found["passed"], checks=checks)


@router.post("/bundle", dependencies=[Depends(requires("admin"))])
async def validate_bundle(daemon: TheDaemon, body: BundleBody) -> Verdict:
    """Load a bundle with everything it includes, and check that it is complete; nothing is registered."""
    home = daemon.home
    parse_reference(body.source)
    registry = open_bundles(home.paths, home.settings, home.progress)
    try:
        bundle = await registry.load_source(body.source)
    except BundleError as error:
        return Verdict(valid=False, checks=[Check(check="loads", passed=False, message=error.message)])
    result = BundleValidator().validate_completeness(bundle)
    checks = [Check(check="loads", passed=True, message="the bundle and its includes were loaded")]
    checks += [Check(check="complete", passed=False, message=text) for text in result.errors]
    checks += [Check(check="warning", passed=True, message=text) for text in result.warnings]
    return Verdict(valid=result.valid, checks=checks)


def _shown(checks: Sequence[PlanCheck]) -> list[PlanCheckInfo]:
    return [PlanCheckInfo.model_validate(check) for check in checks]


async def _find(daemon: Daemon, body: ModuleBody) -> Path:
    """Return where the code of a module is; a source is fetched if the settings allow it."""
    if body.source is None:
        installed = await asyncio.to_thread(installed_modules().find, body.module_id)
        if installed is None:
            raise RequestRefusedError(f"Module not found: {body.module_id}", code="module-not-found")
        return installed.path
    allowed = daemon.home.settings.security.allowed_sources
    if not any(fnmatchcase(body.source, pattern) for pattern in allowed):
        raise RequestRefusedError("security.allowed_sources does not allow this source", code="forbidden")
    return (await daemon.home.sources.resolve(body.source)).path
