"""The agents of the mount plan, and the names and the depth of the sessions they work in."""

import re
import secrets
from collections.abc import Mapping
from typing import Any

from amplifier_kit.mounting import find_capability, session_id_of

_SETTINGS = frozenset({"dirs", "include", "inline"})  # keys beside the agents, which say where more of them come from
_DESCRIPTION_CHARS = 500
_HOP = re.compile(r"-[0-9a-f]{16}_")
_NAMELESS_PARENT = "session"


def plan_of(coordinator: Any) -> Mapping[str, Any]:
    """Return the session's mount plan, empty when there is none."""
    plan = getattr(coordinator, "config", None)
    return plan if isinstance(plan, Mapping) else {}


def agents_of(coordinator: Any) -> dict[str, dict[str, Any]]:
    """Return the agents a task can be handed to, sorted by name."""
    agents = plan_of(coordinator).get("agents")
    if not isinstance(agents, Mapping):
        return {}
    named = {name: agent for name, agent in agents.items() if isinstance(name, str) and isinstance(agent, dict)}
    return {name: named[name] for name in sorted(named) if name not in _SETTINGS}


def listing(agents: Mapping[str, Mapping[str, Any]]) -> str:
    """Return one line for each agent."""
    return "\n".join(f"  - {name}: {_description(agent)}" for name, agent in agents.items())


def _description(agent: Mapping[str, Any]) -> str:
    given = agent.get("description")
    text = " ".join(given.split()) if isinstance(given, str) else ""
    return text[:_DESCRIPTION_CHARS] or "No description"


def new_sub_session_id(parent_session_id: str | None, agent: str) -> str:
    """Return an id for a child session, which tells its parent and its agent."""
    suffix = re.sub(r"[^a-z0-9]+", "-", agent.lower()).strip("-") or "agent"
    return f"{parent_session_id or _NAMELESS_PARENT}-{secrets.token_hex(8)}_{suffix}"


def depth_of(coordinator: Any) -> int:
    """Return how many delegations lie between the user and this session."""
    depth = find_capability(coordinator, "task.depth")
    if isinstance(depth, int) and not isinstance(depth, bool):
        return depth
    return len(_HOP.findall(session_id_of(coordinator) or ""))
