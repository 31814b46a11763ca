"""Mount plans of a home: generated, converted, validated, compared and explained."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from amplifier_foundation.provenance import explain, parse_path
from amplifierd.builds.build import Build
from amplifierd.builds.home_profiles import Profiles
from amplifierd.builds.lock import ProfileLock
from amplifierd.builds.plan_generation import generate_modules, generate_portable, portable_agent_source
from amplifierd.documents.document import ALL_AGENTS, module_identity
from amplifierd.documents.inheritance import DEFAULTS, MergedProfile
from amplifierd.exceptions import FormatUnsupportedError, MountPlanError, ProfileNotFoundError
from amplifierd.identifiers import ProfileId, mount_type, package_name
from amplifierd.issues import Issue
from amplifierd.paths import Paths

from .conversion import Form, find_hint, find_profile, path_of, to_portable, to_resolved
from .difference import PlanDiff, diff_plans
from .validation import PlanReport, validate_mount_plan

_SESSION_SECTION = re.compile(r"^(orchestrator|context)(?=\.config|$)")
_SESSION_SOURCE = re.compile(r"^session\.(orchestrator|context)_source$")
_NO_PLAN = ("plan", "session", "wrong-type")
"""Checks that something fails which has not the shape of a plan."""


class Plans:
    """The plans of one home."""

    def __init__(self, paths: Paths, profiles: Profiles) -> None:
        self._paths, self._profiles = paths, profiles

    async def generate(
        self,
        profile_id: ProfileId | str,
        *,
        form: Form = "portable",
        overrides: Mapping[str, Any] | None = None,
        strict: bool = False,
    ) -> dict[str, Any]:
        """Return the mount plan of a profile; it is compiled first when its build is missing or stale.

        `overrides` are a request's settings, laid over the profile's; `strict` refuses a profile without a context.

        Raises:
            ValueError: `profile_id` is not `collection/profile`.
            FileNotFoundError: there is no such profile, or no build of it and compiling is switched off.
            ProfileValidationError: the profile or the overrides break rules; with all issues.
            ProfileCompilationError: the build cannot be made.
        """
        known = ProfileId.parse(profile_id)
        profiles = self._profiles
        try:
            build = await profiles.ensure(known)
            merged = await asyncio.to_thread(profiles.merged, known, overrides=overrides)
        except ProfileNotFoundError as error:
            directory = self._paths.profile_dir(known)
            raise FileNotFoundError(
                f"Profile cache directory not found: {directory}. Profile {known} must be compiled/cached first."
            ) from error
        merged.raise_for_errors(strict=strict)
        plan = await asyncio.to_thread(generate_portable, merged, build.path, build.lock.data)
        return plan if form == "portable" else await asyncio.to_thread(self.convert, plan, form)

    def convert(self, plan: Mapping[str, Any], form: Form) -> dict[str, Any]:
        """Return a plan in the form asked for; a plan that has it already stays as it is.

        Raises:
            MountPlanError: it has not the shape of a plan.
            ValueError: there is no such form.
        """
        if form not in ("portable", "resolved"):
            raise ValueError(f"form must be portable or resolved, not {form!r}")
        _check_shape(plan)
        profiles_dir = self._paths.profiles
        refs = self._agent_refs(find_profile(plan, profiles_dir))
        convert = to_portable if form == "portable" else to_resolved
        return convert(plan, profiles_dir, refs)

    def validate(self, plan: Any) -> PlanReport:
        """Check a plan of either form against every rule, its sources against this home included."""
        return validate_mount_plan(plan, check_source=self._check_source)

    async def explain(
        self, profile_id: ProfileId | str, key: str, *, overrides: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Say where a value of a profile's plan comes from: `{value, origin{profile, file, line}, overrode[]}`.

        `key` is the key path in a plan of either form: `tools[tool-bash].config.timeout`, `session.context.module`.
        What a request's `overrides` set has the origin `request`, and what nobody wrote `default`, without a file.

        Raises:
            KeyError: the plan has no such value.
        """
        known = ProfileId.parse(profile_id)
        await self._profiles.ensure_extracted(known)
        merged = await asyncio.to_thread(self._profiles.merged, known, overrides=overrides)
        path = _SESSION_SECTION.sub(r"session.\1", _SESSION_SOURCE.sub(r"session.\1.source", key))
        if not merged.is_valid:
            plan: Mapping[str, Any] = {}
        elif parse_path(path)[0] == "agents":
            plan = await self.generate(known, overrides=overrides)
        else:
            plan = await asyncio.to_thread(generate_modules, merged)
        return await asyncio.to_thread(_explain, merged, plan, path)

    def diff(
        self,
        before: Mapping[str, Any],
        after: Mapping[str, Any],
        *,
        builds: tuple[Build | None, Build | None] = (None, None),
    ) -> PlanDiff:
        """Compare two plans.

        The version of a module is the one locked in the build that its plan was made from, given in `builds`, else in
        the profile's published build; where there is none, its source stands for it.
        """
        locks = [
            build.lock if build else self._lock_of(find_profile(plan, self._paths.profiles))
            for build, plan in zip(builds, (before, after), strict=True)
        ]
        versions = [{entry["name"]: _version_of(entry) for entry in lock.modules()} if lock else {} for lock in locks]
        portable = [self.convert(plan, "portable") for plan in (before, after)]
        return diff_plans(portable[0], portable[1], versions=(versions[0], versions[1]))

    def _lock_of(self, profile_id: ProfileId | None) -> ProfileLock | None:
        return self._profiles.read_lock(profile_id) if profile_id is not None else None

    def _agent_refs(self, profile_id: ProfileId | None) -> dict[str, str]:
        """Return the references that a profile's agents came from, by the source that a portable plan names."""
        lock = self._lock_of(profile_id)
        if lock is None or profile_id is None:
            return {}
        agents = lock.data["resources"].get("agents") or {}
        return {portable_agent_source(profile_id, name): agent["ref"] for name, agent in agents.items() if agent["ref"]}

    def _check_source(self, module_id: str, source: Any) -> str | None:
        """Say what keeps a module's source from being found in this home."""
        if (hint := find_hint(source)) is not None:
            try:
                lock = self._lock_of(hint)
            except FormatUnsupportedError as error:
                return error.message
            if lock is None:
                return f"profile {hint} is not compiled here"
            if module_id not in {entry["name"] for entry in lock.modules()}:
                return f"profile {hint} has no module {module_id}"
            return None
        path = path_of(source)
        if path is None:
            return None
        if not path.is_dir():
            return f"{path} does not exist"
        package = package_name(module_id)
        if not (path / package).is_dir() and not (path / f"{package}.py").is_file():
            return f"{path} has no package {package} ({mount_type(module_id)})"
        return None


def _explain(merged: MergedProfile, plan: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return a plan's value with the origin of what the profile says there, or, of what it does not say, the default's.

    A value that is in no plan, the instruction for example, is explained from the profile alone.
    """
    identity = partial(module_identity, path.partition("[")[0])
    try:
        value = explain(plan, (), path, owner="profile", identity=identity)["value"]
    except KeyError:
        return merged.explain(path)
    for declared in _declared(path):
        try:
            explained = merged.explain(declared)
        except KeyError:
            continue
        if explained["origin"]["profile"] is not None:
            return {**explained, "value": value}
    return {"value": value, "origin": {"profile": DEFAULTS, "file": None, "line": None}, "overrode": []}


def _declared(path: str) -> Iterator[str]:
    """Yield where a profile may say what a plan has at a path: an agent is made from what declares it."""
    yield path
    steps = parse_path(path)
    if steps[0] == "agents" and len(steps) > 1:
        yield f"agents[{steps[1]}]"
        yield f"agents[{ALL_AGENTS}]"


def _check_shape(plan: Any) -> None:
    broken = [check for check in validate_mount_plan(plan).errors if check.name in _NO_PLAN and plan != {}]
    if isinstance(plan, Mapping) and plan.get("session") is None:  # a plan in the making
        broken = [check for check in broken if check.name != "session"]
    if broken:
        text = "; ".join(check.message for check in broken)
        issues = [Issue(check.name, check.message, check.location) for check in broken]
        raise MountPlanError(f"The mount plan cannot be converted: {text}", issues)


def _version_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("commit") or entry.get("content_hash") or entry.get("version") or "")
