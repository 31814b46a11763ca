"""What a session's models really are: by role and by agent, and why, as the session itself decides it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_core.boundary import Boundary, settle
from amplifier_core.mount_plan import MountPlan
from amplifier_core.packages import provider_name
from amplifier_foundation.spawn_utils import apply_provider_preferences_with_resolution
from amplifier_kit.loops.announcements import by_preference
from amplifier_system.model_choice import MODEL_ROLE_RESOLVER, ModelChoice, choose_model, roles_in

logger = logging.getLogger(__name__)

_NONE = "no matrix: the session mounts no routing module"


async def routing_of(coordinator: Any) -> dict[str, Any]:
    """Return `{matrix, source, default, roles, agents}` of a loaded session.

    Each role has the `provider` and `model` that will be used, the `position` of the candidate that serves it, and
    `passed`: those before it, each with its verdict. Each agent has what it works with, and who decided. Where nothing
    serves, that is what the session itself uses.
    """
    resolver = coordinator.get_capability(MODEL_ROLE_RESOLVER)
    default = default_model(coordinator)
    matrix = getattr(resolver, "matrix", None)
    roles = [await _role(coordinator, resolver, str(role), default) for role in getattr(resolver, "known_roles", ())]
    agents = coordinator.config.get("agents") or {}
    return {
        "matrix": getattr(resolver, "name", None),
        "source": getattr(matrix, "source", None) or (None if resolver is not None else _NONE),
        "default": default,
        "roles": roles,
        "agents": [
            await _agent(coordinator, str(name), agent, default)
            for name, agent in sorted(agents.items())
            if isinstance(agent, Mapping)
        ],
    }


def default_model(coordinator: Any) -> dict[str, Any]:
    """Return provider and model that the session itself works with."""
    providers: Mapping[str, Any] = coordinator.get("providers") or {}
    orchestrator = MountPlan(coordinator.config).at("session.orchestrator")
    preferred = orchestrator.config.get("default_provider") if orchestrator is not None else None
    for name, provider in by_preference(providers, preferred):
        return {"provider": name, "model": _model_of(coordinator, name, provider)}
    return {"provider": None, "model": None}


async def _role(coordinator: Any, resolver: Any, role: str, default: Mapping[str, Any]) -> dict[str, Any]:
    choice = await _chosen(coordinator, model_role=role)
    explained = await _explained(resolver, role)
    usable = [number for number, one in enumerate(explained) if one.get("verdict") == "usable"]
    position = usable[0] if usable else None
    described = getattr(getattr(resolver, "matrix", None), "roles", {}).get(role)
    used = await _used(coordinator, choice, default)
    return {
        "role": role,
        "description": getattr(described, "description", ""),
        **used,
        "is_served": bool(choice.preferences),
        "position": None if position is None else position + 1,
        "passed": explained if position is None else explained[:position],
    }


async def _agent(coordinator: Any, name: str, agent: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    choice = await _chosen(coordinator, agent=agent)
    wanted = roles_in(agent.get("model_role"))
    reason: str = choice.decided_by if choice.preferences else "parent"
    if choice.role is not None:
        reason = f"agent role {choice.role}"
    return {"agent": name, "model_role": list(wanted), **(await _used(coordinator, choice, default)), "reason": reason}


async def _chosen(coordinator: Any, **asked: Any) -> ModelChoice:
    with Boundary(logger, "a model cannot be chosen: %s"):
        return await choose_model(coordinator, **asked)
    return ModelChoice()


async def _explained(resolver: Any, role: str) -> list[dict[str, Any]]:
    explain = getattr(resolver, "explain", None)
    found: Sequence[Any] = await settle(explain(role)) if callable(explain) else ()
    return [dict(one) for one in found]


async def _used(coordinator: Any, choice: ModelChoice, default: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a child that is spawned with a choice works with: its plan is made as it is for a real one."""
    plan = dict(coordinator.config)
    changed = await apply_provider_preferences_with_resolution(plan, choice.preferences, coordinator)
    if changed is plan:
        return {"provider": default["provider"], "model": default["model"]}
    entries = [*MountPlan(changed).entries(section="providers")]
    first = min(entries, key=lambda entry: _priority(entry.config.get("priority")))
    named = first.instance_id or first.spec.get("id") or provider_name(first.module_id)
    return {"provider": named, "model": first.config.get("default_model")}


def _priority(given: Any) -> float:
    return float(given) if isinstance(given, int | float) else 100.0


def _model_of(coordinator: Any, name: str, provider: Any) -> str | None:
    model = getattr(provider, "default_model", None)
    if isinstance(model, str):
        return model
    for entry in MountPlan(coordinator.config).entries(section="providers"):
        if name in (entry.instance_id, entry.spec.get("id"), provider_name(entry.module_id)):
            configured = entry.config.get("default_model")
            return configured if isinstance(configured, str) else None
    return None
