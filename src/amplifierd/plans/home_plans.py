"""Mount plans of a home: generated, converted, validated, compared and explained."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_core.local_sources import path_of_source
from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import find_code, package_name
from amplifier_foundation.provenance import explain, parse_path
from amplifierd.exceptions import FormatUnsupportedError, MountPlanError, ProfileNotFoundError, ProfileValidationError
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue
from amplifierd.paths import Paths
from amplifierd.profiles.builds.build import Build
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.builds.lock import ProfileLock
from amplifierd.profiles.builds.origins import INSTRUCTION, at_home, declaring_paths, origin_at, single_values
from amplifierd.profiles.builds.plan_generation import portable_agent_source
from amplifierd.profiles.builds.publication import find_published
from amplifierd.profiles.documents.document import module_identity

from .conversion import Form, find_hint, find_profile, to_portable, to_resolved
from .request import REQUEST, lay_over
from .validation import PlanReport, validate_mount_plan

if TYPE_CHECKING:
    from .difference import PlanDiff

_SESSION_SECTION = re.compile(r"^(orchestrator|context)(?=\.config|$)")
_SESSION_SOURCE = re.compile(r"^session\.(orchestrator|context)_source$")
_NO_PLAN = ("plan", "session", "wrong-type")
"""Checks that something fails which has not the shape of a plan."""


class Plans:
    """The plans of one home."""

    def __init__(self, paths: Paths, profiles: Profiles, *, allow_modules: bool = False) -> None:
        self._paths, self._profiles, self._allow_modules = paths, profiles, allow_modules

    async def generate(
        self,
        id_or_build: ProfileId | str | Build,
        *,
        form: Form = "portable",
        overrides: Mapping[str, Any] | None = None,
        overrides_from_elsewhere: bool = False,
        strict: bool = False,
    ) -> dict[str, Any]:
        """Return the mount plan of a build, or of a profile, which is compiled first if its build is missing or stale.

        The build is all that is looked at. `overrides` are a request's settings, laid over its plan; those
        `overrides_from_elsewhere`, of a project or a request, can only tighten its guards. `strict` refuses a profile
        without a context.

        Raises:
            ValueError: the id is not `collection/profile`.
            FileNotFoundError: there is no such profile, or no build of it and compiling is switched off.
            ProfileValidationError: the profile or the overrides break rules; with all issues.
            ProfileCompilationError: the build cannot be made, or cannot be read.
        """
        build = await self._build(id_or_build)
        plan, given = await asyncio.to_thread(self._lay_over, build, overrides, not overrides_from_elsewhere)
        if strict:
            _check_context(build, given)
        return plan if form == "portable" else await asyncio.to_thread(self.convert, plan, form, build=build)

    def convert(self, plan: Mapping[str, Any], form: Form, *, build: Build | None = None) -> dict[str, Any]:
        """Return a plan in the form asked for; a plan that has it already stays as it is.

        `build` is the one that the plan was made from, by default the profile's published build.

        Raises:
            MountPlanError: it has not the shape of a plan.
            ValueError: there is no such form.
        """
        if form not in ("portable", "resolved"):
            raise ValueError(f"form must be portable or resolved, not {form!r}")
        _check_shape(plan)
        profiles_dir = self._paths.profiles
        profile_id = build.profile_id if build else find_profile(plan, profiles_dir)
        refs = self._agent_refs(profile_id, build.lock if build else self._lock_of(profile_id))
        if form == "portable":
            return to_portable(plan, profiles_dir, refs)
        return to_resolved(plan, profiles_dir, refs, builds=self._own_places(build))

    def validate(self, plan: Any) -> PlanReport:
        """Check a plan of either form against every rule, its sources against this home included."""
        find_modules = cache(self._modules_of)  # most modules of a plan are of one profile
        return validate_mount_plan(plan, check_source=partial(self._check_source, find_modules))

    async def explain(
        self, id_or_build: ProfileId | str | Build, key: str, *, overrides: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Say where a value of a build's plan comes from: `{value, origin{profile, file, line}, overrode[]}`.

        `key` is the key path in a plan of either form: `tools[tool-bash].config.timeout`, `session.context.module`, or
        `instruction`. What a request's `overrides` set has the origin `request`, and a default has `default`,
        without a file.

        Raises:
            KeyError: the plan has no such value.
        """
        build = await self._build(id_or_build)
        path = by_entry_path(key)
        return await asyncio.to_thread(lambda: self._explain(self._layers(build, overrides), path))

    async def explain_all(
        self, id_or_build: ProfileId | str | Build, *, overrides: Mapping[str, Any] | None = None
    ) -> dict[str, dict[str, Any]]:
        """Say the same of every single value of a build's plan, and of its instruction, by key path."""
        build = await self._build(id_or_build)

        def explain_each() -> dict[str, dict[str, Any]]:
            layers = self._layers(build, overrides)
            keys = [*([INSTRUCTION] if build.instruction() else []), *single_values(layers.plan)]
            return {key: self._explain(layers, key) for key in keys}

        return await asyncio.to_thread(explain_each)

    def _explain(self, layers: _Layers, path: str) -> dict[str, Any]:
        build, plan, given = layers.build, layers.plan, layers.given
        stored = origin_at(layers.origins, parse_path(path))
        known = {"origin": at_home(stored["origin"], self._paths)} | {
            "overrode": [{**old, "origin": at_home(old["origin"], self._paths)} for old in stored["overrode"]]
        }
        if path == INSTRUCTION and (words := build.instruction()):
            return {"value": words, **known}
        value = _value_at(plan, path)
        if not _is_given(given, path):
            return {"value": value, **known}
        origin = {"profile": REQUEST, "file": None, "line": None}
        try:
            before = _value_at(layers.own_plan, path)
        except KeyError:
            return {"value": value, "origin": origin, "overrode": []}
        merged = isinstance(before, Mapping) and isinstance(value, Mapping)
        overrode = [*known["overrode"], {"value": before, "origin": known["origin"], "merged": merged}]
        return {"value": value, "origin": origin, "overrode": overrode}

    async def _build(self, id_or_build: ProfileId | str | Build) -> Build:
        if isinstance(id_or_build, Build):
            return id_or_build
        known = ProfileId.parse(id_or_build)
        try:
            return await self._profiles.ensure(known)
        except ProfileNotFoundError as error:
            directory = self._paths.profile_dir(known)
            raise FileNotFoundError(
                f"Profile cache directory not found: {directory}. Profile {known} must be compiled/cached first."
            ) from error

    def _lay_over(
        self, build: Build, overrides: Mapping[str, Any] | None, is_own: bool = True
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a build's plan with overrides, and these as sections."""
        plan = build.plan()
        if not overrides:
            return plan, {}
        return lay_over(plan, overrides, build.profile_id, allow_modules=self._allow_modules, is_own=is_own)

    def _layers(self, build: Build, overrides: Mapping[str, Any] | None) -> _Layers:
        return _Layers(build, build.plan(), build.origins(), *self._lay_over(build, overrides))

    def diff(
        self,
        before: Mapping[str, Any] | Build,
        after: Mapping[str, Any] | Build,
        *,
        builds: tuple[Build | None, Build | None] = (None, None),
    ) -> PlanDiff:
        """Compare two plans, or the plans of two builds.

        The version of a module is the one locked in the build that its plan was made from, given in `builds`, else in
        the profile's published build; where there is none, its source stands for it.
        """
        from .difference import diff_plans  # loaded when plans are compared

        sides = [self._side(one, build) for one, build in zip((before, after), builds, strict=True)]
        return diff_plans(sides[0][0], sides[1][0], versions=(sides[0][1], sides[1][1]))

    def _side(self, one: Mapping[str, Any] | Build, build: Build | None) -> tuple[dict[str, Any], dict[str, str]]:
        """Return a plan in portable form, and the versions of its modules."""
        plan, build = (one.plan(), one) if isinstance(one, Build) else (one, build)
        lock = build.lock if build else self._lock_of(find_profile(plan, self._paths.profiles))
        versions = {entry["name"]: _version_of(entry) for entry in lock.modules()} if lock else {}
        return self.convert(plan, "portable", build=build), versions

    def _lock_of(self, profile_id: ProfileId | None) -> ProfileLock | None:
        return self._profiles.read_lock(profile_id) if profile_id is not None else None

    def _modules_of(self, profile_id: ProfileId) -> frozenset[str] | None:
        lock = self._lock_of(profile_id)
        return None if lock is None else frozenset(entry["name"] for entry in lock.modules())

    def _own_places(self, build: Build | None) -> dict[ProfileId, Path]:
        """Return the directory of a build that is not the published one."""
        if build is None or find_published(self._paths, build.profile_id) == build.path:
            return {}
        return {build.profile_id: build.path}

    def _agent_refs(self, profile_id: ProfileId | None, lock: ProfileLock | None) -> dict[str, str]:
        """Return the references that a profile's agents came from, by the source that a portable plan names."""
        if lock is None or profile_id is None:
            return {}
        agents = lock.data["resources"].get("agents") or {}
        return {portable_agent_source(profile_id, name): agent["ref"] for name, agent in agents.items() if agent["ref"]}

    def _check_source(
        self, find_modules: Callable[[ProfileId], frozenset[str] | None], module_id: str, source: Any
    ) -> str | None:
        """Say what keeps a module's source from being found in this home."""
        if (hint := find_hint(source)) is not None:
            try:
                modules = find_modules(hint)
            except FormatUnsupportedError as error:
                return error.message
            if modules is None:
                return f"profile {hint} is not compiled here"
            if module_id not in modules:
                return f"profile {hint} has no module {module_id}"
            return None
        path = path_of_source(source)
        if path is None:
            return None
        if not path.is_dir():
            return f"{path} does not exist"
        if find_code(path, module_id) is None:
            return f"{path} has no package {package_name(module_id)}"
        return None


@dataclass(frozen=True)
class _Layers:
    """What a value of a plan can come from: the build's own plan, with its origins, and what a request sets."""

    build: Build
    own_plan: Mapping[str, Any]
    origins: Mapping[str, Any]
    plan: Mapping[str, Any]
    given: Mapping[str, Any]


def by_entry_path(key: str) -> str:
    """Return the key path of a value in the portable form, for one in either form."""
    return _SESSION_SECTION.sub(r"session.\1", _SESSION_SOURCE.sub(r"session.\1.source", key))


def _value_at(plan: Mapping[str, Any], path: str) -> Any:
    identity = partial(module_identity, path.partition("[")[0])
    return explain(plan, (), path, owner="profile", identity=identity)["value"]


def _is_given(given: Mapping[str, Any], path: str) -> bool:
    for declared in declaring_paths(path):
        try:
            _value_at(given, declared)
        except KeyError:
            continue
        return True
    return False


def _check_context(build: Build, given: Mapping[str, Any]) -> None:
    """Raise when neither the profile nor the request names a context."""
    found = next((text for text in build.lock.warnings if text.startswith("context-missing: ")), None)
    named = MountPlan(given).at("session.context")
    if found is not None and not (named and named.raw):
        issue = Issue("context-missing", found.partition(": ")[2], "session", fix="add session.context")
        raise ProfileValidationError(f"Profile {build.profile_id} is not valid:\n  {issue}", [issue])


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
