"""What a request may change about a profile: settings, not code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any

from amplifierd.exceptions import ProfileValidationError
from amplifierd.issues import Issue, errors

from .document import MODULE_SECTIONS, SESSION_MEMBERS, ReferenceBase, module_identity
from .reading import read_sections


def read_overrides(
    overrides: Mapping[str, Any], profile: Mapping[str, Any], *, allow_modules: bool = False
) -> dict[str, Any]:
    """Return a request's overrides as sections to be merged over a profile's.

    Unless `allow_modules`, they may neither name a source nor bring a module that the profile does not have.

    Raises:
        ProfileValidationError: with all issues.
    """
    sections, issues = read_sections(overrides, ReferenceBase("local", PurePosixPath()))
    found = errors(issues)
    if not allow_modules:
        found += list(_forbidden(sections, profile))
    if found:
        text = "\n".join(f"  {issue}" for issue in found)
        raise ProfileValidationError(f"The overrides cannot be used:\n{text}", found)
    return sections


def _forbidden(sections: Mapping[str, Any], profile: Mapping[str, Any]) -> Iterator[Issue]:
    session, own = sections.get("session") or {}, profile.get("session") or {}
    for member in SESSION_MEMBERS:
        entry = session.get(member)
        if isinstance(entry, Mapping):
            known = {(own.get(member) or {}).get("module")}
            yield from _entry_issues(entry, f"session.{member}", known, entry.get("module"))
    for section in MODULE_SECTIONS:
        present = {module_identity(section, entry) for entry in profile.get(section) or ()}
        for entry in sections.get(section) or ():
            identity = module_identity(section, entry)
            yield from _entry_issues(entry, f"{section}[{identity}]", present, identity)
    for name, value in (sections.get("agents") or {}).items():
        if isinstance(value, str):
            yield _issue(f"The agent '{name}' would come from a source of the request", f"agents.{name}")


def _entry_issues(entry: Mapping[str, Any], location: str, known: set[Any], identity: Any) -> Iterator[Issue]:
    if entry.get("source") is not None:
        yield _issue("A source cannot be given by a request", f"{location}.source")
    if identity is not None and identity not in known:
        yield _issue(f"The profile has no module '{identity}'", location)


def _issue(message: str, location: str) -> Issue:
    return Issue("overlay-source-forbidden", message, location, fix="set security.allow_override_modules to true")
