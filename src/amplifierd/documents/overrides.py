"""What a request may change about a profile: settings, not code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from amplifierd.exceptions import ProfileValidationError
from amplifierd.issues import Issue, errors

from .document import MODULE_SECTIONS, SESSION_MEMBERS, ReferenceBase, module_identity
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
    session, own = sections.get("session") or {}, profile.get("session") or {}
    for member in SESSION_MEMBERS:
        entry = session.get(member)
        if isinstance(entry, Mapping):
            known = {(own.get(member) or {}).get("module")}
            yield from _entry_issues(entry, f"{prefix}session.{member}", known, entry.get("module"))
    for section in MODULE_SECTIONS:
        present = {module_identity(section, entry) for entry in profile.get(section) or ()}
        for entry in sections.get(section) or ():
            identity = module_identity(section, entry)
            yield from _entry_issues(entry, f"{prefix}{section}[{identity}]", present, identity)


def _agent_sections(agent: Mapping[str, Any]) -> dict[str, Any]:
    """Return the overlays of an agent that is defined in place, in the shape of a profile's sections."""
    return read_sections({key: agent[key] for key in ("session", *MODULE_SECTIONS) if key in agent}, REQUEST_BASE)[0]


def _entry_issues(entry: Mapping[str, Any], location: str, known: set[Any], identity: Any) -> Iterator[Issue]:
    fix = "set security.allow_override_modules to true"
    if entry.get("source") is not None:
        yield Issue(_FORBIDDEN, "A source cannot be given by a request", f"{location}.source", fix=fix)
    if identity is not None and identity not in known:
        yield Issue(_FORBIDDEN, f"The profile has no module '{identity}'", location, fix=fix)
