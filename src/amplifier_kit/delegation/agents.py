"""The agents of a session, and what the application does with them: it starts child sessions and continues them."""

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from amplifier_core.boundary import settle
from amplifier_kit.mounting import find_capability, session_id_of
from amplifier_kit.tools.input import ToolFailure
from amplifier_system.model_choice import MODEL_ROLE_RESOLVER, ModelChoice, ProviderPreference, choose_model
from amplifier_system.tracing import generate_sub_session_id

__all__ = [
    "MODEL_ROLE_RESOLVER",
    "NO_AGENTS",
    "RESUME",
    "SPAWN",
    "ModelChoice",
    "ProviderPreference",
    "agents_of",
    "call",
    "choose_model",
    "dispatch_of",
    "fitted",
    "generate_sub_session_id",
    "hops_of",
    "is_blank",
    "is_session_id",
    "listing",
    "orchestrator_config",
    "plan_of",
    "read_preferences",
    "required_capability",
]

SPAWN = "session.spawn"
RESUME = "session.resume"
NO_AGENTS = "Unavailable at the moment: the mount plan has no agents. Do not use it."

_SETTINGS = frozenset({"dirs", "include", "inline"})  # keys beside the agents, which say where more of them come from
_DESCRIPTION_CHARS = 500
_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,255}")
_HOP = re.compile(r"-[0-9a-f]{16}_")

# What an application that was written before these existed does not take.
_OPTIONAL = frozenset(
    {
        *("tool_inheritance", "hook_inheritance", "orchestrator_config", "provider_preferences", "model_role"),
        *("self_delegation_depth", "session_metadata"),
    }
)


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


def hops_of(coordinator: Any) -> int:
    """Return how many delegations the id of a session tells of."""
    return len(_HOP.findall(session_id_of(coordinator) or ""))


def is_session_id(text: str) -> bool:
    return bool(_SESSION_ID.fullmatch(text)) and ".." not in text


def is_blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def required_capability(coordinator: Any, name: str, purpose: str) -> Callable[..., Any]:
    """Return what the application registered under `name`; raises `ToolFailure`."""
    capability = find_capability(coordinator, name)
    if not callable(capability):
        message = f"{purpose} is unavailable: the application must register the capability {name!r}"
        raise ToolFailure(message, "capability_missing")
    found: Callable[..., Any] = capability
    return found


async def call(capability: Callable[..., Any], keywords: dict[str, Any]) -> Any:
    """Call a capability, which may or may not be a coroutine function."""
    return await settle(capability(**keywords))


def fitted(spawn: Callable[..., Any], keywords: dict[str, Any]) -> dict[str, Any]:
    """Return those of the keywords that `spawn` takes; the instruction may be called `task` there."""
    try:
        parameters = inspect.signature(spawn).parameters
    except (TypeError, ValueError):
        return keywords
    named = {name for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters.values())
    taken = {key: value for key, value in keywords.items() if takes_any or key in named or key not in _OPTIONAL}
    if "instruction" not in named and "task" in named:
        task = parameters["task"]
        if not takes_any or task.default is task.empty:
            taken["task"] = taken.pop("instruction")
    return taken


def orchestrator_config(coordinator: Any) -> dict[str, Any] | None:
    """Return the configuration of the session's orchestrator, None when its plan has none."""
    plan = plan_of(coordinator)
    for section in (plan, plan.get("session")):
        orchestrator = section.get("orchestrator") if isinstance(section, Mapping) else None
        config = orchestrator.get("config") if isinstance(orchestrator, Mapping) else None
        if isinstance(config, Mapping):
            return dict(config)
    return None


def dispatch_of(task: Any, coordinator: Any) -> dict[str, Any]:
    """Return which tool call a task serves: `tool_call_id` and `parallel_group_id`, as far as the loop tells."""
    running = getattr(coordinator, "_tool_dispatch_contexts", None)
    served = running.get(task) if isinstance(running, dict) else None
    if not isinstance(served, dict):
        served = getattr(coordinator, "_tool_dispatch_context", None)
    known = served if isinstance(served, dict) else {}
    return {key: known.get(key) for key in ("tool_call_id", "parallel_group_id")}


def read_preferences(tool_name: str, given: list[Any] | None) -> list[ProviderPreference] | None:
    """Return the preferences of a call, None when it has none; raises `ToolFailure`."""
    return [_read(tool_name, index, item) for index, item in enumerate(given)] if given else None


def _read(tool_name: str, index: int, item: Any) -> ProviderPreference:
    def invalid(problem: str) -> ToolFailure:
        return ToolFailure(f"{tool_name}: 'provider_preferences' [{index}] {problem}", "invalid_input")

    if not isinstance(item, dict):
        raise invalid("must be an object with 'provider' and 'model'")
    for key in ("provider", "model"):
        if not isinstance(item.get(key), str) or not item[key].strip():
            raise invalid(f"needs a non-empty string as its {key!r}")
    config = item.get("config")
    if config is not None and not isinstance(config, dict):
        raise invalid(f"has a 'config' that is not an object but of type {type(config).__name__}")
    return ProviderPreference(item["provider"], item["model"], dict(config or {}))
