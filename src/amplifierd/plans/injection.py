"""What a running session adds to its stored plan, on a copy in memory: places, keys and the environment's values."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifierd.documents.document import MODULE_SECTIONS, SESSION_MEMBERS
from amplifierd.identifiers import ProfileId

logger = logging.getLogger(__name__)

_VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-?(?P<default>[^}]*))?\}")
_REMOVED: Any = object()


@dataclass(frozen=True)
class RuntimePlaces:
    """Where a session works and keeps its files."""

    working_dir: Path
    session_dir: Path
    sessions_dir: Path
    approvals_file: Path


def inject_runtime(
    plan: Mapping[str, Any],
    *,
    profile_id: ProfileId | None,
    places: RuntimePlaces,
    environment: Mapping[str, str],
    find_key: Callable[[str], str | None],
) -> tuple[dict[str, Any], list[str]]:
    """Return the plan that the kernel gets, and warnings such as `env-missing: VAR`; the stored plan is not changed.

    `find_key(module_id)` gives a provider's stored key; a key in the profile comes first.
    """
    missing: list[str] = []
    injected = _expand(copy.deepcopy(dict(plan)), environment, missing)
    session = injected.setdefault("session", {})
    working_dir = str(places.working_dir)
    settings = {**(session.get("settings") or {}), "working_dir": working_dir, "session_cwd": working_dir}
    session["settings"] = {**settings, **({"profile_name": str(profile_id)} if profile_id else {})}
    for module, config in _configs(injected):
        for key, value in _defaults(module, places, find_key).items():
            config.setdefault(key, value)
        if module == "hooks-logging":
            config["session_log_template"] = str(places.sessions_dir / "{session_id}" / "log.jsonl")
        if module == "hooks-approval":
            audit = config.setdefault("audit", {})
            if isinstance(audit, dict):
                audit.setdefault("file", str(places.approvals_file))
    return injected, [f"env-missing: {name}" for name in dict.fromkeys(missing)]


def _defaults(module: str, places: RuntimePlaces, find_key: Callable[[str], str | None]) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    if module.startswith("tool"):
        defaults["working_dir"] = str(places.working_dir)
    if module == "tool-filesystem":
        defaults["allowed_write_paths"] = [str(places.working_dir)]
    if module == "context-persistent":
        defaults["transcript_path"] = str(places.session_dir / "context-messages.jsonl")
    if module.startswith("provider") and (key := find_key(module)):
        defaults["api_key"] = key
    return defaults


def _configs(plan: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return every module of a plan, in either form, with its configuration to be changed in place."""
    session = plan["session"]
    found: list[tuple[str, dict[str, Any]]] = []
    for member in SESSION_MEMBERS:
        entry = session.get(member)
        if isinstance(entry, dict) and isinstance(entry.get("module"), str):
            found.append((entry["module"], _config_in(entry)))
        elif isinstance(entry, str):
            found.append((entry, _config_in(plan.setdefault(member, {}))))
    for section in MODULE_SECTIONS:
        for entry in plan.get(section) or ():
            if isinstance(entry, dict) and isinstance(entry.get("module"), str):
                found.append((entry["module"], _config_in(entry)))
    return found


def _config_in(entry: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(entry.get("config"), dict):
        entry["config"] = {}
    config: dict[str, Any] = entry["config"]
    return config


def _expand(value: Any, environment: Mapping[str, str], missing: list[str]) -> Any:
    """Put the environment's values in place of `${VAR}`; a value that is nothing but an unset one is removed."""
    if isinstance(value, dict):
        pairs = ((key, _expand(inner, environment, missing)) for key, inner in value.items())
        return {key: inner for key, inner in pairs if inner is not _REMOVED}
    if isinstance(value, list):
        items = (_expand(item, environment, missing) for item in value)
        return [item for item in items if item is not _REMOVED]
    if not isinstance(value, str) or "${" not in value:
        return value

    def substitute(match: re.Match[str]) -> str:
        found = environment.get(match["name"]) or match["default"]
        if found is None:
            missing.append(match["name"])
        return found or ""

    whole = _VARIABLE.fullmatch(value)
    expanded = _VARIABLE.sub(substitute, value)
    return _REMOVED if whole and whole["default"] is None and not expanded else expanded
