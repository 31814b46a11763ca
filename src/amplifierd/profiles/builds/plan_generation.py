"""From a merged profile and its build to a portable mount plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.io import parse_frontmatter
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.identifiers import ProfileId
from amplifierd.profiles.documents.document import ALL_AGENTS, as_json
from amplifierd.profiles.documents.inheritance import MergedProfile

_GENERATED = ("module", "source", "config")


def generate_portable(merged: MergedProfile, build_dir: Path, compiled: Iterable[str]) -> dict[str, Any]:
    """Return the portable plan of a profile: every module with the profile as its hint, agents embedded.

    `compiled` are the agents whose files are in the build.

    Raises:
        ProfileCompilationError: an agent's file cannot be read.
    """
    hint = str(merged.profile_id)
    declared = MountPlan({"session": merged.sections.get("session") or {}, **MountPlan(merged.sections).lists()})
    modules = MountPlan(declared.map(lambda entry: _entry(entry.spec, hint))).by_entry()
    plan: dict[str, Any] = as_json({**modules, "agents": _agents(merged, build_dir, compiled)})
    return plan


def portable_agent_source(profile_id: ProfileId, name: str) -> str:
    return f"{profile_id.collection}:agents/{name}.md"


def inline_agent_source(profile_id: ProfileId, name: str) -> str:
    return f"{profile_id}#agents.{name}"


def _entry(entry: Mapping[str, Any], hint: str) -> dict[str, Any]:
    extras = {key: value for key, value in entry.items() if key not in _GENERATED}
    generated = {"module": entry["module"], "source": hint}
    return {**generated, "config": entry.get("config") or {}, **extras}


def _agents(merged: MergedProfile, build_dir: Path, compiled: Iterable[str]) -> dict[str, Any]:
    """Return the agents in the profile's order; those that `all` stands for come where it stands."""
    profile_id, declared = merged.profile_id, merged.sections.get("agents") or {}
    agents: dict[str, Any] = {}
    for name, value in declared.items():
        if isinstance(value, Mapping):
            agents[name] = agent_from_mapping(name, value, inline_agent_source(profile_id, name))
        elif value is None:
            continue  # left out of all
        elif name == ALL_AGENTS:
            agents.update({n: _compiled_agent(n, build_dir, profile_id) for n in compiled if n not in declared})
        else:
            agents[name] = _compiled_agent(name, build_dir, profile_id)
    return agents


def _compiled_agent(name: str, build_dir: Path, profile_id: ProfileId) -> dict[str, Any]:
    path = build_dir / "agents" / f"{name}.md"
    try:
        text = path.read_text(encoding="utf-8-sig")
        return agent_from_text(name, text, portable_agent_source(profile_id, name))
    except (OSError, ValueError) as error:
        raise ProfileCompilationError(
            f"Agent '{name}' of profile {profile_id} cannot be read from {path}: {error}",
            code="agent-unreadable",
            hint="compile the profile again with force",
        ) from error


# An agent as it stands in a mount plan: its text, and what delegation tools read of it.


_OVERLAYS = ("session", "providers", "tools", "hooks")


def agent_from_text(name: str, text: str, source: str) -> dict[str, Any]:
    """Return the plan's entry for an agent file; front matter adds its description, overlays and instruction.

    Raises:
        ValueError: the front matter is not YAML.
    """
    entry: dict[str, Any] = {"content": text, "metadata": {"source": source}}
    try:
        front, body = parse_frontmatter(text)
    except yaml.YAMLError as error:
        raise ValueError(f"Agent '{name}' has front matter that is not YAML: {error}") from error
    if not isinstance(front, Mapping) or not front:
        return entry
    return {**entry, **_derived(name, as_json(front), body.strip())}


def agent_from_mapping(name: str, definition: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the plan's entry for an agent that a profile defines in place."""
    system = definition.get("system")
    inner = system.get("instruction") if isinstance(system, Mapping) else None
    text = str(definition.get("instruction") or inner or definition.get("content") or "")
    return {"content": text, "metadata": {"source": source}, **_derived(name, definition, text)}


def _derived(name: str, front: Mapping[str, Any], body: str) -> dict[str, Any]:
    meta = front.get("meta")
    described = meta.get("description") if isinstance(meta, Mapping) else None
    return {
        "description": described or front.get("description") or f"Agent: {name}",
        **{key: front[key] for key in _OVERLAYS if front.get(key) is not None},
        "system": {"instruction": body},
    }
