"""What a request may change about a profile: settings, not code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS, MountPlan, PlanEntry
from amplifierd.exceptions import ProfileValidationError
from amplifierd.issues import Issue, errors

from .document import ReferenceBase
from .profile_reader import read_sections

REQUEST_BASE = ReferenceBase("local", PurePosixPath())
"""Where the references of a request count from. They differ from a profile's in being of this very object."""

_SECTIONS = ("session", *MODULE_SECTIONS, "agents", "exclude")
_FORBIDDEN = "overlay-source-forbidden"


def read_overrides(
    overrides: Mapping[str, Any], profile: Mapping[str, Any], *, allow_modules: bool = False
) -> dict[str, Any]:
    """Return a request's overrides as sections to be merged over a profile's.

    Unless `allow_modules`, they may neither name a source nor bring a module that the profile does not have. What is
    part of a build, agents from files and context directories, they can never bring.

    Raises:
        ProfileValidationError: with all issues.
    """
    sections, issues = read_sections(overrides, REQUEST_BASE)
    found = [*errors(issues), *_without_effect(sections, overrides)]
    if not allow_modules:
        found += _modules_issues(sections, profile, "")
        for name, agent in (sections.get("agents") or {}).items():
            if isinstance(agent, Mapping):
                found += _modules_issues(_agent_sections(agent), profile, f"agents.{name}.")
    if found:
        text = "\n".join(f"  {issue}" for issue in found)
        raise ProfileValidationError(f"The overrides cannot be used:\n{text}", found)
    return sections


def _without_effect(sections: Mapping[str, Any], overrides: Mapping[str, Any]) -> Iterator[Issue]:
    fix = "put it into the profile, or into the user's overlay"
    for name, value in (sections.get("agents") or {}).items():
        if isinstance(value, str):
            yield Issue(
                _FORBIDDEN, f"The agent '{name}' would come from a source of the request", f"agents.{name}", fix=fix
            )
    for key in overrides:
        if key in ("context", "contexts"):
            yield Issue(_FORBIDDEN, "Context directories cannot be given by a request", str(key), fix=fix)
        elif key not in _SECTIONS:
            yield Issue("unknown-key", f"A request cannot change '{key}'", str(key), fix=f"use {', '.join(_SECTIONS)}")


def _modules_issues(sections: Mapping[str, Any], profile: Mapping[str, Any], prefix: str) -> Iterator[Issue]:
    known = {(entry.section, entry.identity) for entry in MountPlan(profile).entries()}
    for entry in MountPlan(sections).slots():
        place = entry.place if entry.section in SESSION_MEMBERS else f"{entry.section}[{entry.identity}]"
        is_known = not entry.identity or (entry.section, entry.identity) in known
        yield from _entry_issues(entry, f"{prefix}{place}", is_known=is_known)


def _agent_sections(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overlays of an agent that is defined in place, in the shape of a profile's sections."""
    return read_sections({key: agent[key] for key in ("session", *MODULE_SECTIONS) if key in agent}, REQUEST_BASE)[0]


def _entry_issues(entry: PlanEntry, location: str, *, is_known: bool) -> Iterator[Issue]:
    fix = "set security.allow_override_modules to true"
    if entry.source is not None:
        yield Issue(_FORBIDDEN, "A source cannot be given by a request", f"{location}.source", fix=fix)
    if not is_known:
        yield Issue(_FORBIDDEN, f"The profile has no module '{entry.identity}'", location, fix=fix)
