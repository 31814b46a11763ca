"""Delegation: the plan of a child session, and what its parent is told of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.bundle import Bundle
from amplifier_foundation.dicts.merge import deep_merge
from amplifier_foundation.spawn import SELF, Order, child_bundle, instruction_of, model_choice_of
from amplifier_foundation.spawn_utils import apply_provider_preferences_with_resolution
from amplifier_foundation.tracing import generate_sub_session_id
from amplifier_system.model_choice import choose_model
from amplifierd.exceptions import AgentNotFoundError


@dataclass(frozen=True)
class ChildPlan:
    """What a child session is made of."""

    session_id: str
    agent_name: str
    plan: dict[str, Any]
    instruction: str
    messages: Sequence[Mapping[str, Any]]
    metadata: Mapping[str, Any]
    self_delegation_depth: int


async def plan_child(
    parent: Any,
    bundle: Bundle | None,
    agent_name: str,
    *,
    agent_configs: Mapping[str, Mapping[str, Any]] | None = None,
    sub_session_id: str | None = None,
    tool_inheritance: Mapping[str, Any] | None = None,
    hook_inheritance: Mapping[str, Any] | None = None,
    orchestrator_config: Mapping[str, Any] | None = None,
    parent_messages: Sequence[Mapping[str, Any]] | None = None,
    provider_preferences: Sequence[Any] | None = None,
    model_role: str | Sequence[str] | None = None,
    self_delegation_depth: int = 0,
    session_metadata: Mapping[str, Any] | None = None,
    stored_plan: Mapping[str, Any],
) -> ChildPlan:
    """Return the plan of a child that works as an agent of its parent; `parent` is the parent's kernel session.

    `stored_plan` is the parent's plan as it is stored: places and keys of the parent's run are not handed down.

    Raises:
        AgentNotFoundError: the parent has no such agent.
    """
    known = {**_added(parent, stored_plan), **(stored_plan.get("agents") or {})}
    definition = _definition(agent_name, {**known, **(agent_configs or {})})
    order = Order.of(
        agent_name,
        definition,
        known,
        agent_configs,
        tool_inheritance=tool_inheritance,
        hook_inheritance=hook_inheritance,
        orchestrator_config=orchestrator_config,
        provider_preferences=provider_preferences,
        model_role=model_role,
        self_delegation_depth=self_delegation_depth,
        session_metadata=session_metadata,
    )
    own = child_bundle(bundle or Bundle(name=agent_name), stored_plan, order)
    plan = own.to_mount_plan()
    if config := order.whole_orchestrator_config():
        plan = _with_orchestrator_config(plan, config)
    choice = await model_choice_of(order, parent)
    plan = await apply_provider_preferences_with_resolution(plan, choice.preferences, parent.coordinator)
    return ChildPlan(
        session_id=sub_session_id or generate_sub_session_id(agent_name, parent.session_id),
        agent_name=agent_name,
        plan=plan,
        instruction=str(instruction_of(definition) or definition.get("content") or ""),
        messages=() if sub_session_id else tuple(parent_messages or ()),
        metadata=dict(session_metadata or {}),
        self_delegation_depth=self_delegation_depth,
    )


async def plan_with_choice(
    plan: dict[str, Any], coordinator: Any, provider_preferences: Sequence[Any] | None, model_role: Any
) -> dict[str, Any]:
    """Return a child's plan with the model that a call prefers; `coordinator` is that of its parent."""
    choice = await choose_model(coordinator, provider_preferences=provider_preferences, model_role=model_role)
    return await apply_provider_preferences_with_resolution(plan, choice.preferences, coordinator)


def _added(parent: Any, stored_plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return the agents that the running session has beyond its stored plan, such as those of a mode."""
    live = parent.coordinator.config.get("agents")
    stored = stored_plan.get("agents") or {}
    return {name: agent for name, agent in live.items() if name not in stored} if isinstance(live, Mapping) else {}


def _definition(agent_name: str, agents: Mapping[str, Any]) -> Mapping[str, Any]:
    if agent_name == SELF:
        return {}
    found = agents.get(agent_name)
    if not isinstance(found, Mapping):
        names = ", ".join(sorted(map(str, agents))) or "none"
        raise AgentNotFoundError(f"Agent '{agent_name}' not found. Available: {names}")
    return found


def _with_orchestrator_config(plan: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    view = MountPlan(plan)
    entry = view.at("session.orchestrator")
    if entry is None:
        return plan
    return view.replace(entry, {**entry.spec, "config": deep_merge(dict(entry.config), dict(config), lists="replace")})
