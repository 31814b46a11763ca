"""A skill that is carried out in a session of its own: with which tools, and with which model."""

import logging
import uuid
from collections.abc import Mapping
from typing import Any

from amplifier_core.packages import package_name
from amplifier_kit.delegation.agents import SPAWN, ModelChoice, agents_of, call, choose_model, fitted, hops_of, plan_of
from amplifier_kit.delegation.conversation import with_parent_context
from amplifier_kit.delegation.engine import TreeLimits
from amplifier_kit.mounting import find_capability, find_mounted, session_id_of
from amplifier_kit.tools.input import ToolFailure

from .definition import SkillMetadata

logger = logging.getLogger(__name__)

_MODEL_HINTS = (
    *((hint, "fast") for hint in ("haiku", "flash", "mini", "turbo")),
    *(("sonnet", "coding"), ("opus", "reasoning")),
)
_ARCHETYPES = {"explore": "fast", "plan": "reasoning", "code": "coding", "review": "critique"}
_CLAUDE_NAMES = {
    **{"Read": "read_file", "Write": "write_file", "Edit": "edit_file", "MultiEdit": "edit_file", "LS": "read_file"},
    **{"Glob": "glob", "Grep": "grep", "Bash": "bash", "WebFetch": "web_fetch", "WebSearch": "web_search"},
    **{"Task": "delegate", "TodoWrite": "todo", "Skill": "load_skill"},
}


def modules_of(coordinator: Any, skill: SkillMetadata) -> list[str]:
    """Return the modules whose tools a forked skill is given; raises `ToolFailure` for an entry that means none."""
    planned = plan_of(coordinator).get("tools")
    modules = {
        str(entry.get("module")) if isinstance(entry, Mapping) else str(entry)
        for entry in (planned if isinstance(planned, list) else ())
    }
    packages = {package_name(module): module for module in modules}
    tools = find_mounted(coordinator, "tools")
    mounted = {
        name: packages.get(_package_of(tool)) for name, tool in (tools.items() if isinstance(tools, Mapping) else ())
    }
    found: dict[str, None] = {}
    unmatched = []
    for entry in skill.allowed_tools or ():
        name = entry.partition("(")[0]
        module = name if name in modules else mounted.get(name) or mounted.get(_CLAUDE_NAMES.get(name, ""))
        if module is None:
            unmatched.append(entry)
        else:
            found[module] = None
    if unmatched:
        known = ", ".join(sorted({*modules, *mounted})) or "none"
        message = f"allowed-tools of the skill {skill.name!r} names what this session does not have: "
        raise ToolFailure(f"{message}{', '.join(unmatched)}. Available: {known}", "invalid_input")
    return list(found)


def _package_of(tool: Any) -> str:
    return type(getattr(tool, "__wrapped__", tool)).__module__.partition(".")[0]


async def choose(coordinator: Any, skill: SkillMetadata) -> ModelChoice:
    """Return what the skill is carried out with: its preferences, its role, its model's hint, its agent's archetype."""
    role: Any = skill.model_role
    if role is None and skill.model:
        role = next((named for hint, named in _MODEL_HINTS if hint in skill.model.lower()), "general")
    if role is None and skill.agent:
        role = _ARCHETYPES.get(skill.agent.lower(), "general")
    choice = await choose_model(coordinator, provider_preferences=skill.provider_preferences, model_role=role)
    if choice.unserved:
        logger.warning("tool-skills: nothing serves the roles of %s: %s", skill.name, ", ".join(choice.unserved))
    return choice


async def carry_out(coordinator: Any, skill: SkillMetadata, body: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Spawn a session for a skill, and return what the model is told; raises `ToolFailure`."""
    modules = modules_of(coordinator, skill)
    limits = TreeLimits.of(coordinator)
    limits.check_depth(coordinator, hops_of(coordinator))
    limits.count(session_id_of(coordinator), f"skill-{uuid.uuid4().hex}")
    instruction = await with_parent_context(
        coordinator,
        f"# {skill.name}\n\n{body}",
        depth=values["context_depth"],
        turns=values["context_turns"],
        scope=values["context_scope"],
    )
    spawn = find_capability(coordinator, SPAWN)
    try:
        keywords: dict[str, Any] = {
            "agent_name": "self",
            "instruction": instruction,
            "parent_session": getattr(coordinator, "session", None),
            "agent_configs": agents_of(coordinator),
            "sub_session_id": None,
            "provider_preferences": list((await choose(coordinator, skill)).preferences) or None,
            "session_metadata": {"skill_name": skill.name, "context": "fork", "is_forked_skill_session": True},
        }
        if skill.allowed_tools is not None:
            keywords["tool_inheritance"] = {"inherit_tools": modules}
        returned = await call(spawn, fitted(spawn, keywords))
    except Exception as error:
        logger.warning("tool-skills: the fork of %s failed", skill.name, exc_info=True)
        raise ToolFailure(f"Fork execution failed: {error}", "spawn_failed", type=type(error).__name__) from error
    if not isinstance(returned, Mapping):
        raise ToolFailure("Fork execution failed: the session returned nothing", "spawn_failed")
    return {
        "response": returned.get("output"),
        "message": f"The skill {skill.name!r} was carried out in a session of its own",
        "session_id": returned.get("session_id"),
        "skill_name": skill.name,
        "context": "fork",
        "turn_count": returned.get("turn_count"),
        "status": returned.get("status") or "success",
    }
