"""A child session: one instruction, run with a bundle on behalf of a parent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amplifier_core
from amplifier_core.events import ORCHESTRATOR_COMPLETE
from amplifier_core.models import HookResult
from amplifier_core.mount_plan import MountPlan
from amplifier_foundation.dicts.merge import deep_merge, merge_module_lists, module_identity
from amplifier_foundation.mentions import BaseMentionResolver, expand_mentions_in_instruction, parse_mentions
from amplifier_foundation.observability import (
    COST_CHANNEL,
    FOUNDATION_OBSERVABILITY_EVENTS,
    bridge_child_cost,
    event_recorders,
    inject_additional_events,
    sum_cost_usd,
)
from amplifier_foundation.session.capabilities import get_working_dir
from amplifier_foundation.spawn_utils import apply_provider_preferences_with_resolution

from .session_setup import announce_mentions, equip, hand_down, offer_mentions, session_plan
from .system_prompt import give_system_prompt, has_content, namespaces_of, policy_of

if TYPE_CHECKING:
    from amplifier_core import AmplifierSession
    from amplifier_foundation.bundle import Bundle
    from amplifier_foundation.spawn_utils import ProviderPreference

    from .prepared_bundle import PreparedBundle


SessionCallback = Callable[["AmplifierSession"], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Child:
    """How a child session is run. `messages` are its history.

    `on_ready` is called with the session before it executes, `on_end` after that, however it ended.
    """

    compose: bool = True
    parent_session: Any = None
    session_id: str | None = None
    orchestrator_config: dict[str, Any] | None = None
    messages: list[dict[str, Any]] | None = None
    session_cwd: Path | None = None
    provider_preferences: Sequence[ProviderPreference] | None = None
    self_delegation_depth: int = 0
    is_resumed: bool = False
    on_ready: SessionCallback | None = None
    on_end: SessionCallback | None = None


async def run_child(prepared: PreparedBundle, bundle: Bundle, instruction: str, child: Child) -> dict[str, Any]:
    """Create the child session, run the instruction in it, end it, and return what came of it."""
    parent = child.parent_session
    effective = _effective(prepared, bundle, compose=child.compose)
    effective.resolve_pending_context()
    plan = await _plan(prepared, effective, bundle, child)
    resumed: dict[str, Any] = {"is_resumed": True} if child.is_resumed else {}
    session = amplifier_core.AmplifierSession(  # looked up at every call: applications substitute it
        session_plan(plan),
        session_id=child.session_id,
        parent_id=parent.session_id if parent is not None else None,
        approval_system=parent.coordinator.approval_system if parent is not None else None,
        display_system=parent.coordinator.display_system if parent is not None else None,
        **resumed,
    )
    working_dir = _working_dir(prepared, child)
    try:
        with _linked(parent, session):
            await equip(prepared, session, working_dir)
            if parent is not None:
                hand_down(parent, session)
            if child.self_delegation_depth > 0:
                session.coordinator.register_capability("self_delegation_depth", child.self_delegation_depth)
            await session.initialize()
            await _give_prompt(prepared, effective, session, working_dir, child)
            return await _execute(effective, session, instruction, working_dir, child)
    finally:
        await session.cleanup()


def _effective(prepared: PreparedBundle, bundle: Bundle, *, compose: bool) -> Bundle:
    """Return the bundle that runs; an instruction that comes from no file is that of an agent's definition."""
    effective = prepared.bundle.compose(bundle) if compose else copy(bundle)
    if bundle.instruction and bundle._file is None and not bundle._layers:
        effective._agent_instruction = True
    return effective


async def _plan(prepared: PreparedBundle, effective: Bundle, own: Bundle, child: Child) -> dict[str, Any]:
    plan = effective.to_mount_plan()
    if child.compose:
        _add_injected(plan, prepared.mount_plan)
        _hand_down_by_policy(plan, prepared.bundle.spawn, own)
    if child.orchestrator_config:
        plan = _with_orchestrator_config(plan, child.orchestrator_config)
    if child.provider_preferences:
        coordinator = child.parent_session.coordinator if child.parent_session is not None else None
        plan = await apply_provider_preferences_with_resolution(plan, child.provider_preferences, coordinator)
    recorders = event_recorders(plan, prepared.resolver)
    inject_additional_events(plan, FOUNDATION_OBSERVABILITY_EVENTS, recorders)
    return plan


def _add_injected(plan: dict[str, Any], mount_plan: dict[str, Any]) -> None:
    """Add the modules that an application put into the prepared plan and the bundle does not have."""
    present = MountPlan(plan).lists()
    for section, entries in MountPlan(mount_plan).lists().items():
        known = {module_identity(entry) for entry in present[section]}
        injected = [entry for entry in entries if isinstance(entry, dict) and module_identity(entry) not in known]
        if injected:
            plan[section] = merge_module_lists(present[section], injected)


def _hand_down_by_policy(plan: dict[str, Any], policy: Mapping[str, Any], own: Bundle) -> None:
    """Leave in a child's plan what the parent's `spawn` policy hands down, and what the child's bundle names itself."""
    present = MountPlan(plan).lists()
    for section, named in (("tools", own.tools), ("hooks", own.hooks)):
        explicit = {entry.get("module") for entry in named if isinstance(entry, dict)}
        if section == "hooks":  # a guard goes with every child
            explicit |= {entry.get("module") for entry in present["hooks"] if entry.get("required")}
        excluded = {*(policy.get(f"exclude_{section}") or ())} - explicit
        if section == "tools" and isinstance(policy.get("tools"), list):
            chosen = [{"module": entry} if isinstance(entry, str) else entry for entry in policy["tools"]]
            kept = [entry for entry in present["tools"] if entry.get("module") in explicit]
            plan["tools"] = merge_module_lists(deepcopy(chosen), kept)
        elif excluded:
            plan[section] = [entry for entry in present[section] if entry.get("module") not in excluded]


def _with_orchestrator_config(plan: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """Return a plan whose orchestrator has this configuration, too, in whichever form the plan names it."""
    changed = {**plan, "orchestrator": deep_merge(plan.get("orchestrator") or {}, {"config": config}, lists="replace")}
    entry = MountPlan(plan).at("session.orchestrator")
    if entry is None or entry.is_by_name:
        return changed
    whole = {**entry.spec, "config": deep_merge(dict(entry.config), config, lists="replace")}
    return MountPlan(changed).replace(entry, whole)


def _working_dir(prepared: PreparedBundle, child: Child) -> Path:
    if child.session_cwd is not None:
        return child.session_cwd
    fallback = prepared.bundle.base_path
    if child.parent_session is not None:
        return get_working_dir(child.parent_session.coordinator, fallback)
    return fallback or Path.cwd()


async def _give_prompt(
    prepared: PreparedBundle, effective: Bundle, session: AmplifierSession, working_dir: Path, child: Child
) -> None:
    """Give an initialized child its history, its system prompt and its capabilities."""
    coordinator = session.coordinator
    context = coordinator.get("context")
    if has_content(effective):
        announce_mentions(session)
    if child.messages and hasattr(context, "set_messages"):
        await context.set_messages(child.messages)
    if has_content(effective):
        offer_mentions(session, effective, working_dir)
        factory = prepared._create_system_prompt_factory(effective, session, working_dir)
        await give_system_prompt(context, factory)
    if child.on_ready is not None:
        await child.on_ready(session)


async def _execute(
    effective: Bundle, session: AmplifierSession, instruction: str, working_dir: Path, child: Child
) -> dict[str, Any]:
    completed: dict[str, Any] = {}

    async def capture(event: str, data: dict[str, Any]) -> HookResult:
        completed.update(data)
        return HookResult()

    unregister = session.coordinator.hooks.register(
        ORCHESTRATOR_COMPLETE, capture, priority=999, name="_spawn_completion_capture"
    )
    try:
        if parse_mentions(instruction):
            resolver = BaseMentionResolver(namespaces_of(effective), working_dir)
            policy = policy_of(session)
            instruction = await expand_mentions_in_instruction(instruction, resolver=resolver, policy=policy)
        response = await session.execute(instruction)
    finally:
        unregister()
        if child.parent_session is not None:
            await bridge_child_cost(session.coordinator, child.parent_session.coordinator, session.session_id)
        if child.on_end is not None:
            await child.on_end(session)
    cost = sum_cost_usd(await session.coordinator.collect_contributions(COST_CHANNEL))
    return {
        "output": response,
        "session_id": session.session_id,
        "status": completed.get("status", "success"),
        "turn_count": completed.get("turn_count", 1),
        "metadata": {**completed.get("metadata", {}), **({} if cost is None else {"cost_usd": str(cost)})},
    }


@contextmanager
def _linked(parent: Any, session: AmplifierSession) -> Iterator[None]:
    """Pass a parent's requests to stop on to its child, for as long as the child lives."""
    token = getattr(parent.coordinator, "cancellation", None) if parent is not None else None
    child_token = getattr(session.coordinator, "cancellation", None)  # a stand-in for a session may have none
    if token is None or child_token is None:
        yield
        return
    token.register_child(child_token)
    try:
        yield
    finally:
        token.unregister_child(child_token)
