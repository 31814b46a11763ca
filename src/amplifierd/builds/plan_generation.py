"""From a merged profile and its build to a portable mount plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifierd.documents.document import ALL_AGENTS, as_json
from amplifierd.documents.inheritance import MergedProfile
from amplifierd.exceptions import ProfileCompilationError
from amplifierd.identifiers import ProfileId

from .agents import agent_from_mapping, agent_from_text

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
