"""The two forms of a mount plan, and the way from each to the other.

Portable: session members are mappings, sources are the hint `collection/profile`. Resolved: session members are names,
sources are `file://` directories of the published profile, configuration of session members stands at the top level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from amplifier_core.local_sources import path_of_source
from amplifier_core.mount_plan import MountPlan
from amplifierd.identifiers import ProfileId, find_mount_type
from amplifierd.profiles.builds.plan_generation import portable_agent_source
from amplifierd.profiles.builds.publication import BUILDS_DIR

Form = Literal["portable", "resolved"]

PROFILE_KEY = "profile"
"""In `session` of a resolved plan in which no source names the profile: its id, for the way back."""


def find_hint(source: Any) -> ProfileId | None:
    """Return the profile that a plan's `source` hints at, `None` when it is something else."""
    if isinstance(source, Mapping) and set(source) == {"collection", "profile"}:
        source = f"{source['collection']}/{source['profile']}"
    try:
        return ProfileId.parse(source) if isinstance(source, str) else None
    except ValueError:
        return None


def to_resolved(
    plan: Mapping[str, Any],
    profiles_dir: Path,
    agent_refs: Mapping[str, str],
    *,
    builds: Mapping[ProfileId, Path] | None = None,
) -> dict[str, Any]:
    """Return a plan in resolved form.

    `agent_refs` are the references that the agents' files came from, `builds` the directories of profiles that are not
    used as they are published.
    """
    hints: list[ProfileId] = []

    def places(profile_id: ProfileId) -> Path:
        return (builds or {}).get(profile_id, profiles_dir / profile_id.collection / profile_id.name)

    lists = {section: found for section, found in MountPlan(plan).lists().items() if section in plan}
    placed = MountPlan({**plan, **lists}).map(lambda entry: _with_directory(entry.spec, places, hints))
    resolved = MountPlan(placed).by_name()
    if "agents" in plan:
        resolved["agents"] = {
            name: _with_source(agent, agent_refs.get(_source_of(agent), _source_of(agent)))
            for name, agent in (plan["agents"] or {}).items()
        }
    if hints and not find_profile(resolved, profiles_dir):
        resolved["session"][PROFILE_KEY] = str(hints[0])
    return resolved


def to_portable(plan: Mapping[str, Any], profiles_dir: Path, agent_refs: Mapping[str, str]) -> dict[str, Any]:
    """Return a plan in portable form, with the profile as hint for what comes from its build or is installed."""
    profile_id = find_profile(plan, profiles_dir)
    hint = str(profile_id) if profile_id else None
    by_entry = MountPlan(plan).by_entry()
    if hint is not None and by_entry["session"].get(PROFILE_KEY) == hint:
        del by_entry["session"][PROFILE_KEY]
    complete = {**by_entry, **MountPlan(plan).lists(), "agents": dict(plan.get("agents") or {})}
    portable = MountPlan(complete).map(lambda entry: _with_hint(entry.spec, profiles_dir, hint))
    if profile_id is not None:
        written = {ref: source for source, ref in agent_refs.items()}
        for name, agent in portable["agents"].items():
            source = portable_agent_source(profile_id, name)
            if agent_refs.get(source) == _source_of(agent) or _source_of(agent) in written:
                portable["agents"][name] = _with_source(agent, source)
    return MountPlan(portable).by_entry()


def directory_url(path: Path) -> str:
    return path.absolute().as_uri()


def find_compiled(url: Any, profiles_dir: Path) -> ProfileId | None:
    """Return the profile in whose published directory a `file://` source lies, `None` when it lies elsewhere."""
    path = path_of_source(url)
    if path is None:
        return None
    try:
        parts = path.relative_to(profiles_dir.absolute()).parts
        if len(parts) == 6 and parts[1] == BUILDS_DIR:
            return ProfileId.parse(f"{parts[0]}/{parts[2]}")
        return ProfileId.parse("/".join(parts[:2])) if len(parts) == 4 else None
    except ValueError:
        return None


Places = Callable[[ProfileId], Path]


def _with_directory(entry: Mapping[str, Any], places: Places, hints: list[ProfileId]) -> dict[str, Any]:
    """Return a module entry with its hint replaced by the compiled directory, or without source if there is none."""
    resolved = dict(entry)
    hint, module = find_hint(entry.get("source")), str(entry.get("module") or "")
    mount_type = find_mount_type(module)
    if hint is None or mount_type is None:
        return resolved
    hints.append(hint)
    directory = places(hint) / mount_type / module
    if directory.is_dir():
        resolved["source"] = directory_url(directory)
    else:
        del resolved["source"]
    return resolved


def _with_hint(entry: Mapping[str, Any], profiles_dir: Path, hint: str | None) -> dict[str, Any]:
    if not entry.get("module"):
        return dict(entry)
    source = entry.get("source")
    compiled = find_compiled(source, profiles_dir)
    source = str(compiled) if compiled else source if source is not None else hint
    extras = {key: value for key, value in entry.items() if key not in ("module", "source", "config")}
    head = {"module": entry.get("module"), **({"source": source} if source is not None else {})}
    return {**head, "config": entry.get("config") or {}, **extras}


def find_profile(plan: Mapping[str, Any], profiles_dir: Path) -> ProfileId | None:
    """Return the profile that a plan of either form was made from, `None` when it does not say."""
    view = MountPlan(plan)
    session, sources = view.session, [entry.source for entry in view.entries()]
    settings = session.get("settings")
    named = [session.get(PROFILE_KEY), settings.get("profile_name") if isinstance(settings, Mapping) else None]
    found = [find_compiled(source, profiles_dir) or find_hint(source) for source in sources]
    return next((profile for profile in [*found, *map(find_hint, named)] if profile), None)


def _source_of(agent: Any) -> str:
    metadata = agent.get("metadata") if isinstance(agent, Mapping) else None
    return str(metadata.get("source") or "") if isinstance(metadata, Mapping) else ""


def _with_source(agent: Any, source: str) -> Any:
    if not isinstance(agent, Mapping) or not source:
        return agent
    return {**agent, "metadata": {**(agent.get("metadata") or {}), "source": source}}
