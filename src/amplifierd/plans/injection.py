"""What a running session adds to its stored plan, on a copy in memory: places, keys and the environment's values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import MODULE_SECTIONS, SESSION_MEMBERS, MountPlan, PlanEntry
from amplifierd.identifiers import NAMING_SECRET, ProfileId, is_kept_secret
from amplifierd.profiles.documents.document import module_identity

from .foreign_values import VARIABLE, FindVariable, ForeignValues, Steps
from .runtime_values import RuntimePlaces, RuntimeValues, key_variables

_REMOVED: Any = object()

FindFor = Callable[[Steps, str], FindVariable | None]
"""Says how the variables of a text at some steps are found; None leaves the text as it is."""


def inject_runtime(
    plan: Mapping[str, Any],
    *,
    profile_id: ProfileId | None,
    places: RuntimePlaces,
    environment: Mapping[str, str],
    find_key: Callable[[str], str | None],
    resolver: ModuleSourceResolver | None = None,
    foreign: ForeignValues | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Return the plan that the kernel gets, and warnings such as `env-missing: VAR`; the stored plan is not changed.

    `find_key(name)` gives the stored key of a provider, or a secret that is kept for the plan. It may have to ask the
    system's keyring, and is called for providers that have use for a key and none in the profile. `resolver` is the one
    that the session's loader asks: what a compiled module declares is read where its code lies. `foreign` decides what
    modules get that a plan from elsewhere names; without it, all of the plan is the person's own.

    Raises:
        AgreementNeededError: the plan names keys and variables that no one agreed to give away.
    """
    missing: list[str] = []
    find = variables(environment, find_key)
    if foreign is not None:
        foreign.check(plan)
    find_for: FindFor = foreign.finder(plan) if foreign is not None else lambda steps, text: find
    expanded = _expand(dict(plan), find_for, missing, ())
    session = expanded.get("session") or {}
    working_dir = str(places.working_dir)
    settings = {**(session.get("settings") or {}), "working_dir": working_dir, "session_cwd": working_dir}
    settings |= {"profile_name": str(profile_id)} if profile_id else {}
    values = RuntimeValues(places, resolver)

    def fill_in(entry: PlanEntry) -> Mapping[str, Any]:
        wants_key = entry.module_type == "provider" and "api_key" not in entry.config and key_variables(entry, resolver)
        key = find_key(entry.module_id) if wants_key else None
        config = {**_defaults(entry, working_dir, key), **entry.config}
        config = values.fill_in(entry, config)
        return {**entry.spec, "config": config} if config else entry.spec

    injected = MountPlan({**expanded, "session": {**session, "settings": settings}}).map(fill_in)
    codes = ((name, "secret-missing" if is_kept_secret(name) else "env-missing") for name in dict.fromkeys(missing))
    return injected, [f"{code}: {name}" for name, code in codes]


def _defaults(entry: PlanEntry, working_dir: str, key: str | None) -> dict[str, Any]:
    """Return what every tool gets, and every provider with a stored key."""
    if entry.module_type == "tool":
        return {"working_dir": working_dir}
    return {"api_key": key} if key else {}


def named_variables(plan: Mapping[str, Any]) -> frozenset[str]:
    """Return the variables of the environment that a plan names as `${VAR}`."""
    return frozenset(match["name"] for match in VARIABLE.finditer(json.dumps(plan, default=str)))


def variables(environment: Mapping[str, str], find_key: FindVariable) -> FindVariable:
    """Return what finds the value of a variable: a secret that is kept, in the key store, others in the environment."""

    def find(name: str) -> str | None:
        if is_kept_secret(name):
            return find_key(name) if name != NAMING_SECRET else None
        return environment.get(name)

    return find


def expand_variables(value: Any, find: FindVariable, missing: list[str]) -> Any:
    """Put the values that are found in place of `${VAR}`; a value that is nothing but an unset one is removed.

    `missing` gets the names of those that are not set.
    """
    return _expand(value, lambda steps, text: find, missing, ())


def _expand(value: Any, find_for: FindFor, missing: list[str], steps: Steps) -> Any:
    if isinstance(value, dict):
        pairs = ((key, _expand(inner, find_for, missing, _below(steps, str(key)))) for key, inner in value.items())
        return {key: inner for key, inner in pairs if inner is not _REMOVED}
    if isinstance(value, list):
        items = [_expand(item, find_for, missing, (*steps, _step(steps, at, item))) for at, item in enumerate(value)]
        return [item for item in items if item is not _REMOVED]
    if not isinstance(value, str) or "${" not in value or (find := find_for(steps, value)) is None:
        return value

    def substitute(match: re.Match[str]) -> str:
        found, default = find(match["name"]), match["default"]
        if found is None and default is None:
            missing.append(match["name"])
        return found or default or ""

    whole = VARIABLE.fullmatch(value)
    is_unset = whole is not None and whole["default"] is None and find(whole["name"]) is None
    expanded = VARIABLE.sub(substitute, value)
    return _REMOVED if is_unset else expanded


def _below(steps: Steps, key: str) -> Steps:
    """Return the steps to a value of a mapping; the members of a session have the same in both forms of a plan."""
    if len(steps) == 1 and steps[0] in SESSION_MEMBERS and key == "config":
        return ("session", *steps, key)
    return (*steps, key)


def _step(steps: Steps, position: int, item: Any) -> str:
    section = steps[-1] if steps else ""
    identity = module_identity(section, item) if section in MODULE_SECTIONS and isinstance(item, Mapping) else None
    return identity or str(position)
