"""What a running session adds to its stored plan, on a copy in memory: places, keys and the environment's values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifierd.identifiers import ProfileId, is_kept_secret

from .module_declarations import key_variables
from .runtime_values import RuntimePlaces, RuntimeValues

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-?(?P<default>[^}]*))?\}")
_REMOVED: Any = object()

FindVariable = Callable[[str], str | None]


def inject_runtime(
    plan: Mapping[str, Any],
    *,
    profile_id: ProfileId | None,
    places: RuntimePlaces,
    environment: Mapping[str, str],
    find_key: Callable[[str], str | None],
    resolver: ModuleSourceResolver | None = None,
) -> tuple[dict[str, Any], list[str]]:
    """Return the plan that the kernel gets, and warnings such as `env-missing: VAR`; the stored plan is not changed.

    `find_key(name)` gives the stored key of a provider, or a secret that is kept for the plan. It may have to ask the
    system's keyring, and is called for providers that have use for a key and none in the profile. `resolver` is the one
    that the session's loader asks: what a compiled module declares is read where its code lies.
    """
    missing: list[str] = []
    expanded = expand_variables(dict(plan), variables(environment, find_key), missing)
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
    return frozenset(match["name"] for match in _VARIABLE.finditer(json.dumps(plan, default=str)))


def variables(environment: Mapping[str, str], find_key: FindVariable) -> FindVariable:
    """Return what finds the value of a variable: a secret that is kept, in the key store, others in the environment."""
    return lambda name: find_key(name) if is_kept_secret(name) else environment.get(name)


def expand_variables(value: Any, find: FindVariable, missing: list[str]) -> Any:
    """Put the values that are found in place of `${VAR}`; a value that is nothing but an unset one is removed.

    `missing` gets the names of those that are not set.
    """
    if isinstance(value, dict):
        pairs = ((key, expand_variables(inner, find, missing)) for key, inner in value.items())
        return {key: inner for key, inner in pairs if inner is not _REMOVED}
    if isinstance(value, list):
        items = (expand_variables(item, find, missing) for item in value)
        return [item for item in items if item is not _REMOVED]
    if not isinstance(value, str) or "${" not in value:
        return value

    def substitute(match: re.Match[str]) -> str:
        found, default = find(match["name"]), match["default"]
        if found is None and default is None:
            missing.append(match["name"])
        return found or default or ""

    whole = _VARIABLE.fullmatch(value)
    is_unset = whole is not None and whole["default"] is None and find(whole["name"]) is None
    expanded = _VARIABLE.sub(substitute, value)
    return _REMOVED if is_unset else expanded
