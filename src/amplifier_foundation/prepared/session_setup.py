"""Setting a session of a prepared bundle up, in the order that modules and applications rely on."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import amplifier_core
from amplifier_core.boundary import Boundary
from amplifier_core.mount_plan import MountPlan, PlanEntry
from amplifier_foundation.bundle.model import origin_of_rule
from amplifier_foundation.mentions import BaseMentionResolver, ContentDeduplicator
from amplifier_foundation.observability import (
    FOUNDATION_OBSERVABILITY_EVENTS,
    event_recorders,
    inject_additional_events,
)
from amplifier_foundation.session.capabilities import set_working_dir
from amplifier_system.policy import SessionPolicy

from .system_prompt import MENTIONS_RESOLVED, give_system_prompt, has_content, namespaces_of

if TYPE_CHECKING:
    from amplifier_core import AmplifierSession
    from amplifier_foundation.bundle import Bundle
    from amplifier_foundation.configurator.overlay import RuntimeOverlay

    from .prepared_bundle import PreparedBundle

logger = logging.getLogger(__name__)

RUNTIME_OVERLAY = "session.runtime_overlay"


async def open_session(
    prepared: PreparedBundle,
    *,
    session_id: str | None,
    parent_id: str | None,
    approval_system: Any,
    display_system: Any,
    session_cwd: Path | None,
    is_resumed: bool,
) -> AmplifierSession:
    """Create, equip and initialize a session; one that cannot be initialized is cleaned up."""
    bundle = prepared.bundle
    recorders = event_recorders(prepared.mount_plan, prepared.resolver)
    inject_additional_events(prepared.mount_plan, FOUNDATION_OBSERVABILITY_EVENTS, recorders)
    session = amplifier_core.AmplifierSession(  # looked up at every call: applications substitute it
        session_plan(prepared.mount_plan),
        session_id=session_id,
        parent_id=parent_id,
        approval_system=approval_system,
        display_system=display_system,
        is_resumed=is_resumed,
    )
    base = session_cwd or bundle.base_path or Path.cwd()
    try:
        await equip(prepared, session, base)
        await session.initialize()
        bundle.resolve_pending_context()
        _describe_hooks(session)
        if has_content(bundle):
            announce_mentions(session)
            offer_mentions(session, bundle, base)
            factory = prepared._create_system_prompt_factory(bundle, session, session_cwd)
            await give_system_prompt(session.coordinator.get("context"), factory)
    except BaseException:
        await session.cleanup()
        raise
    return session


async def equip(prepared: PreparedBundle, session: AmplifierSession, working_dir: Path) -> None:
    """Give a session what its modules need while they are mounted: import paths, resolver, working directory."""
    coordinator = session.coordinator
    release = prepared._import_paths.acquire()
    register_cleanup = getattr(coordinator, "register_cleanup", None)  # a stand-in for a session may have none
    if callable(register_cleanup):
        register_cleanup(release)
    await coordinator.mount("module-source-resolver", prepared.resolver)
    if prepared.bundle_package_paths:
        coordinator.register_capability("bundle_package_paths", list(prepared.bundle_package_paths))
    set_working_dir(coordinator, working_dir)
    offer_overlay(session, prepared.bundle)
    if rules := policy_rules(session):
        origin_of = partial(origin_of_rule, prepared.bundle)
        coordinator.register_capability(POLICY, SessionPolicy.of(rules, working_dir=working_dir, origin_of=origin_of))


def announce_mentions(session: AmplifierSession) -> None:
    """Make the event about resolved mentions known to those who collect events."""
    session.coordinator.register_contributor(
        "observability.events", "foundation:mention-resolver", lambda: [MENTIONS_RESOLVED]
    )


def offer_mentions(session: AmplifierSession, bundle: Bundle, base: Path) -> None:
    """Let modules resolve mentions as the bundle does."""
    resolver = BaseMentionResolver(bundles=namespaces_of(bundle), base_path=base)
    session.coordinator.register_capability("mention_resolver", resolver)
    session.coordinator.register_capability("mention_deduplicator", ContentDeduplicator())


def _describe_hooks(session: AmplifierSession) -> None:
    message = "the hooks of session %s cannot be listed: %s"
    with Boundary(logger, message, session.session_id, level=logging.DEBUG):
        handlers = session.coordinator.hooks.list_handlers()
        metadata = {name: {"event": event} for event, names in handlers.items() for name in names}
        session.coordinator.register_capability("hook_metadata", metadata)


def session_plan(mount_plan: dict[str, Any]) -> dict[str, Any]:
    """Return the plan for a session: providers that have an `id` are mounted under it. Otherwise the plan itself."""
    plan = MountPlan(mount_plan)
    if not any(_lacks_instance_id(entry) for entry in plan.entries(section="providers")):
        return mount_plan
    return plan.map(_with_instance_id, section="providers")


def _with_instance_id(entry: PlanEntry) -> dict[str, Any]:
    named = {"instance_id": entry.spec["id"]} if _lacks_instance_id(entry) else {}
    return {**entry.spec, **named}


def _lacks_instance_id(entry: PlanEntry) -> bool:
    return bool(entry.spec.get("id")) and not entry.spec.get("instance_id")


# What a child session inherits of its parent: of guards it can have less, never more.


GATE, CONSENT, CONCERN, GUARD = "approval.gate", "approval.consent", "approval.concern", "approval.guard"
LEDGER, POLICY = "approval.ledger", "session.policy"
MODE_GUARD = "mode.guard"
"""Called with a coordinator, it returns what sees the tool calls of that session for the mode of another one."""
MODE_GUARDS = "mode.guards"
"""The mode guards of all sessions above, the root's first."""

_HANDED_DOWN = ("mention_resolver", "mention_deduplicator", "session.routing", "delegation.limits")
_SKILLS = "runtime_skill_overlay"


def hand_down(parent: Any, child: Any) -> None:
    """Give a child what its modules look for of its parent's while they are mounted, and its parent's guards."""
    inherited = getattr(parent.coordinator, "get_capability", None)
    register = getattr(child.coordinator, "register_capability", None)
    if callable(inherited) and callable(register):  # stand-ins for sessions may have neither
        for name in _HANDED_DOWN:
            if (value := inherited(name)) is not None:
                register(name, value)
        if skills := inherited(_SKILLS):
            register(_SKILLS, list(skills))
    hand_down_guards(parent, child)


def hand_down_guards(parent: Any, child: Any) -> None:
    """Give a child the gate that decides about its parent's calls, and the parent's policy with the child's own rules.

    The gate, and the modes of the sessions above, are asked about every call of a tool of the child, whichever loop it
    has. Called before the child's modules are mounted: a guard among them finds the gate and can only deny more.
    """
    inherited = getattr(parent.coordinator, "get_capability", None)
    register = getattr(child.coordinator, "register_capability", None)
    if not callable(inherited) or not callable(register):  # stand-ins for sessions may have neither
        return
    for name in (GATE, CONSENT, CONCERN, GUARD, LEDGER):
        if (value := inherited(name)) is not None:
            register(name, value)
    own = inherited(MODE_GUARD)
    modes = (*(inherited(MODE_GUARDS) or ()), *((own,) if callable(own) else ()))
    register(MODE_GUARDS, modes)
    intercept = getattr(child.coordinator, "intercept_tools", None)  # which only this kernel has
    if callable(intercept):
        if (guard := inherited(GUARD)) is not None:
            intercept(GUARD, guard)
        for level, guard_of in enumerate(modes):
            intercept(f"{MODE_GUARD} {level}", guard_of(child.coordinator))
    policy = inherited(POLICY)
    if hasattr(policy, "narrowed_by"):
        register(POLICY, policy.narrowed_by(policy_rules(child)))


def offer_overlay(session: AmplifierSession, bundle: Bundle | None) -> None:
    """Let modules add agents, context and skills to the running session for a while.

    The capability is called with `success_event` and `failure_event`, by name, and returns a `RuntimeOverlay`.
    """
    session.coordinator.register_capability(RUNTIME_OVERLAY, partial(_overlay, session.coordinator, bundle))


def _overlay(coordinator: Any, bundle: Bundle | None, **events: str) -> RuntimeOverlay:
    from amplifier_foundation.configurator.overlay import RuntimeOverlay  # few sessions need one

    return RuntimeOverlay(coordinator, bundle=bundle, **events)


def policy_rules(session: Any) -> Any:
    """Return `session.policy` of a session's plan; a stand-in for a session may have no plan."""
    plan = getattr(session, "config", None)
    return MountPlan(plan).session.get("policy") if isinstance(plan, Mapping) else None
