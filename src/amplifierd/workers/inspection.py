"""What is mounted in a loaded session, and how far its cancellation is, as plain data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from amplifier_core import ModuleCoordinator
from amplifier_core.mount_plan import MountPlan
from amplifier_core.utils import json_safe
from amplifier_core.utils.tool_schema import tool_schema
from amplifierd.sessions.module_record import modes_of, skills_of
from amplifierd.sessions.routing import routing_of
from amplifierd.sessions.session import Session

from .live_sessions import Part

Listed = list[dict[str, Any]]
Plan = dict[str, Any]


def _modules(session: Session, plan: Plan) -> Listed:
    kernel = session.runner.kernel
    failed = {str(one.get("module_id")): one for one in kernel.load_failures}
    return [
        {
            "id": entry.module_id,
            "type": entry.module_type,
            "mount_point": entry.section,
            "status": "failed" if entry.module_id in failed else "loaded",
            "error": failed.get(entry.module_id),
        }
        for entry in MountPlan(plan).entries()
    ]


def _tools(session: Session, plan: Plan) -> Listed:
    tools: Mapping[str, Any] = _coordinator(session).get("tools") or {}
    return [
        {
            "name": name,
            "description": str(getattr(tool, "description", "")),
            "input_schema": json_safe(tool_schema(tool)),
        }
        for name, tool in tools.items()
    ]


def _hooks(session: Session, plan: Plan) -> Listed:
    handlers = _coordinator(session).hooks.list_handlers()
    return [{"event": event, "handlers": names} for event, names in sorted(handlers.items()) if names]


def _capabilities(session: Session, plan: Plan) -> Listed:
    return [{"name": name} for name in sorted(_coordinator(session).to_dict()["capabilities"])]


def _agents(session: Session, plan: Plan) -> Listed:
    agents: Mapping[str, Any] = plan.get("agents") or {}
    return [
        {"name": name, "description": agent.get("description") if isinstance(agent, Mapping) else None}
        for name, agent in sorted(agents.items())
    ]


async def _routing(session: Session, plan: Plan) -> Listed:
    return [json_safe(await routing_of(_coordinator(session)))]


def _mode(session: Session, plan: Plan) -> Listed:
    return [json_safe(modes_of(_coordinator(session)))]


async def _skills(session: Session, plan: Plan) -> Listed:
    return [json_safe(await skills_of(_coordinator(session)))]


INSPECTIONS: Mapping[Part, Callable[[Session, Plan], Listed | Awaitable[Listed]]] = {
    "modules": _modules,
    "tools": _tools,
    "hooks": _hooks,
    "capabilities": _capabilities,
    "agents": _agents,
    "routing": _routing,
    "mode": _mode,
    "skills": _skills,
}


def cancellation_of(session: Session) -> dict[str, Any]:
    """Return `{state, is_cancelled, is_graceful, is_immediate, running_tools}` of the running turn."""
    if session.activity in ("idle", "queued", None):
        return no_cancellation()
    token = _coordinator(session).cancellation
    return {
        "state": token.state,
        "is_cancelled": token.is_cancelled,
        "is_graceful": token.is_graceful,
        "is_immediate": token.is_immediate,
        "running_tools": [{"call_id": call, "name": name} for call, name in token.running_calls.items()],
    }


def no_cancellation() -> dict[str, Any]:
    """Return the same where nothing runs."""
    states = dict.fromkeys(("is_cancelled", "is_graceful", "is_immediate"), False)
    return {"state": "none", **states, "running_tools": []}


def _coordinator(session: Session) -> ModuleCoordinator:
    return session.runner.kernel.session.coordinator
