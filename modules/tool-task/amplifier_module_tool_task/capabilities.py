"""What the application does for the tool: start a child session, or continue one."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from amplifier_core.boundary import settle
from amplifier_kit.mounting import find_capability
from amplifier_kit.tools.input import ToolFailure

from .agents import plan_of

SPAWN = "session.spawn"
RESUME = "session.resume"

# What an application that was written before these existed does not take.
_OPTIONAL = frozenset({"tool_inheritance", "hook_inheritance", "orchestrator_config", "provider_preferences"})


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
