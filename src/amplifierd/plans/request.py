"""What a request changes about the plan of a build: laid over it, without a look at any text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifierd.exceptions import ProfileValidationError
from amplifierd.identifiers import ProfileId
from amplifierd.issues import Issue, errors
from amplifierd.profiles.builds.plan_generation import agent_from_mapping, inline_agent_source
from amplifierd.profiles.documents.inheritance import DEFAULT_CONTEXT, exclude, find_missing, merge_sections
from amplifierd.profiles.documents.overrides import read_overrides

from .guards import confined, guard_of, tightened, without_guards

REQUEST = "request"
"""Names the layer of what a request changes."""


def lay_over(
    plan: Mapping[str, Any],
    overrides: Mapping[str, Any],
    profile_id: ProfileId,
    *,
    allow_modules: bool,
    is_own: bool = True,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a portable plan with a request's overrides laid over it, and the sections that were laid over.

    Overrides that are not the person's own can only tighten the guards.

    Raises:
        ProfileValidationError: the overrides are not allowed, or leave no plan; with all issues.
    """
    given = read_overrides(overrides, plan, allow_modules=allow_modules)
    if not is_own:
        given = _tightening(given, plan)
    if given.get("agents"):
        given["agents"] = {name: _agent(name, agent, profile_id) for name, agent in given["agents"].items()}
    kept = exclude(plan, given.get("exclude") or {}, lambda location: None)
    try:
        sections = merge_sections(kept, given)
    except ValueError as exc:
        issue = Issue("policy-invalid", str(exc), "session.policy")
        raise ProfileValidationError(f"The overrides cannot be used:\n  {issue}", [issue]) from exc
    _check(sections, profile_id)
    _check_required(plan, sections)
    session = dict(sections["session"])
    session.setdefault("context", {"module": DEFAULT_CONTEXT})
    whole = {"session": session, **MountPlan(sections).lists(), "agents": sections.get("agents") or {}}
    return MountPlan(whole).map(lambda entry: _complete(entry.spec, str(profile_id))), given


def lay_over_plan(plan: Mapping[str, Any], overrides: Mapping[str, Any], *, allow_modules: bool) -> dict[str, Any]:
    """Return a plan that comes from no profile, a bundle's for instance, with a request's overrides laid over it.

    Raises:
        ProfileValidationError: the overrides are not allowed; with all issues.
    """
    given = _tightening(read_overrides(overrides, plan, allow_modules=allow_modules), plan)
    portable = MountPlan(plan).by_entry()
    try:
        merged = merge_sections(exclude(portable, given.get("exclude") or {}, lambda location: None), given)
    except ValueError as exc:
        issue = Issue("policy-invalid", str(exc), "session.policy")
        raise ProfileValidationError(f"The overrides cannot be used:\n  {issue}", [issue]) from exc
    _check_required(portable, merged)
    return merged


def _tightening(given: dict[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return overrides in which each guard has the whole configuration that it gets: its own, and more.

    Tools of which they would take the sandbox away keep it.
    """
    if given.get("tools"):
        given = {**given, "tools": confined(given["tools"])[0]}
    hooks = given.get("hooks") or []
    if all(guard_of(entry) is None for entry in hooks):
        return given
    guards = [entry.spec for entry in MountPlan(plan).entries(section="hooks") if guard_of(entry.spec)]
    named = {guard_of(entry) for entry in hooks}
    kept = [tightened(guard, hooks)[0] for guard in guards if guard_of(guard) in named]
    return {**given, "hooks": [*without_guards(hooks), *kept]}


def _agent(name: str, agent: Any, profile_id: ProfileId) -> Any:
    if not isinstance(agent, Mapping):
        return agent
    return agent_from_mapping(name, agent, inline_agent_source(profile_id, name))


def _complete(spec: Mapping[str, Any], hint: str) -> dict[str, Any]:
    """Return an entry as plans have it; a source that the request gave is in no build, and stands for itself."""
    head = {"module": spec["module"], "source": str(spec.get("source") or hint), "config": spec.get("config") or {}}
    return {**head, **{key: value for key, value in spec.items() if key not in head}}


def _check_required(plan: Mapping[str, Any], sections: Mapping[str, Any]) -> None:
    """Refuse a request that takes out a module that the profile requires, or says that it is not required."""
    kept = {(entry.section, entry.identity) for entry in MountPlan(sections).entries() if entry.is_required}
    found = [
        Issue("overlay-required-removed", f"A request cannot remove '{entry.module_id}': it is required", entry.place)
        for entry in MountPlan(plan).entries()
        if entry.is_required and (entry.section, entry.identity) not in kept
    ]
    if found:
        text = "\n".join(f"  {issue}" for issue in found)
        raise ProfileValidationError(f"The overrides cannot be used:\n{text}", found)


def _check(sections: Mapping[str, Any], profile_id: ProfileId) -> None:
    if found := errors(find_missing(sections)):
        text = "\n".join(f"  {issue}" for issue in found)
        raise ProfileValidationError(f"The overrides leave no valid plan of profile {profile_id}:\n{text}", found)
