"""Mount plans of a home: generated, converted, validated, compared and explained."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from amplifierd.exceptions import ProfileNotFoundError
from amplifierd.identifiers import ProfileId, mount_type, package_name
from amplifierd.profiles.lock import ProfileLock

from .conversion import Form, find_hint, find_profile, path_of, to_portable, to_resolved
from .difference import PlanDiff, diff_plans
from .generation import generate_portable, portable_agent_source
from .validation import PlanReport, validate_mount_plan

if TYPE_CHECKING:
    from amplifierd.home import Home

_SESSION_SECTION = re.compile(r"^(orchestrator|context)(?=\.config|$)")
_SESSION_SOURCE = re.compile(r"^session\.(orchestrator|context)_source$")
_SOURCE = re.compile(r"^(?:session\.(?:orchestrator|context)|(?:providers|tools|hooks)\[[^\]]+\])\.source$")


class Plans:
    """The plans of one home."""

    def __init__(self, home: Home) -> None:
        self._home = home

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
        profiles = self._home.profiles
        try:
            build = await profiles.ensure(known)
            merged = await asyncio.to_thread(profiles.merged, known, overrides=overrides)
        except ProfileNotFoundError as error:
            directory = self._home.paths.profile_dir(known)
            raise FileNotFoundError(
                f"Profile cache directory not found: {directory}. Profile {known} must be compiled/cached first."
            ) from error
        merged.raise_for_errors(strict=strict)
        plan = await asyncio.to_thread(generate_portable, merged, build.path, build.lock.data)
        return plan if form == "portable" else await asyncio.to_thread(self.convert, plan, form)

    def convert(self, plan: Mapping[str, Any], form: Form) -> dict[str, Any]:
        """Return a plan in the form asked for; a plan that has it already stays as it is."""
        if form not in ("portable", "resolved"):
            raise ValueError(f"form must be portable or resolved, not {form!r}")
        profiles_dir = self._home.paths.profiles
        refs = self._agent_refs(find_profile(plan, profiles_dir))
        convert = to_portable if form == "portable" else to_resolved
        return convert(plan, profiles_dir, refs)

    def validate(self, plan: Any) -> PlanReport:
        """Check a plan of either form against every rule, its sources against this home included."""
        return validate_mount_plan(plan, check_source=self._check_source)

    async def explain(self, profile_id: ProfileId | str, key: str) -> dict[str, Any]:
        """Say where a value of a profile's plan comes from: `{value, origin{profile, file, line}, overrode[]}`.

        `key` is the key path in a plan of either form: `tools[tool-bash].config.timeout`, `session.context.module`.

        Raises:
            KeyError: the plan has no such value.
        """
        known = ProfileId.parse(profile_id)
        await self._home.profiles.ensure_extracted(known)
        merged = await asyncio.to_thread(self._home.profiles.merged, known)
        path = _SESSION_SECTION.sub(r"session.\1", _SESSION_SOURCE.sub(r"session.\1.source", key))
        explained = await asyncio.to_thread(merged.explain, path)
        if _SOURCE.match(path):
            explained["value"] = str(known)  # in a plan the profile stands for where its modules come from
        return explained

    def diff(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> PlanDiff:
        """Compare two plans. The versions of modules that are locked in this home count; else their sources do."""
        return diff_plans(
            self.convert(before, "portable"),
            self.convert(after, "portable"),
            versions=(self._versions(before), self._versions(after)),
        )

    def _lock_of(self, profile_id: ProfileId | None) -> ProfileLock | None:
        return self._home.profiles.read_lock(profile_id) if profile_id is not None else None

    def _agent_refs(self, profile_id: ProfileId | None) -> dict[str, str]:
        """Return the references that a profile's agents came from, by the source that a portable plan names."""
        lock = self._lock_of(profile_id)
        if lock is None or profile_id is None:
            return {}
        agents = lock.data["resources"].get("agents") or {}
        return {portable_agent_source(profile_id, name): agent["ref"] for name, agent in agents.items() if agent["ref"]}

    def _versions(self, plan: Mapping[str, Any]) -> dict[str, str]:
        lock = self._lock_of(find_profile(plan, self._home.paths.profiles))
        if lock is None:
            return {}
        return {entry["name"]: _version_of(entry) for entry in lock.modules()}

    def _check_source(self, module_id: str, source: Any) -> str | None:
        """Say what keeps a module's source from being found in this home."""
        if (hint := find_hint(source)) is not None:
            lock = self._lock_of(hint)
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


def _version_of(entry: Mapping[str, Any]) -> str:
    return str(entry.get("commit") or entry.get("content_hash") or entry.get("version") or "")
