"""What a child session inherits of its parent's guards: it can have less, never more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from amplifier_core.mount_plan import MountPlan

GATE, CONSENT, CONCERN, GUARD = "approval.gate", "approval.consent", "approval.concern", "approval.guard"
LEDGER, POLICY = "approval.ledger", "session.policy"


def hand_down_guards(parent: Any, child: Any) -> None:
    """Give a child the gate that decides about its parent's calls, and the parent's policy with the child's own rules.

    The gate is asked about every call of a tool of the child, whichever loop it has. Called before the child's modules
    are mounted: a guard among them finds the gate and can only deny more.
    """
    inherited = getattr(parent.coordinator, "get_capability", None)
    register = getattr(child.coordinator, "register_capability", None)
    if not callable(inherited) or not callable(register):  # stand-ins for sessions may have neither
        return
    for name in (GATE, CONSENT, CONCERN, GUARD, LEDGER):
        if (value := inherited(name)) is not None:
            register(name, value)
    intercept = getattr(child.coordinator, "intercept_tools", None)  # which only this kernel has
    if callable(intercept) and (guard := inherited(GUARD)) is not None:
        intercept(GUARD, guard)
    policy = inherited(POLICY)
    if hasattr(policy, "narrowed_by"):
        register(POLICY, policy.narrowed_by(policy_rules(child)))


def policy_rules(session: Any) -> Any:
    """Return `session.policy` of a session's plan; a stand-in for a session may have no plan."""
    plan = getattr(session, "config", None)
    return MountPlan(plan).session.get("policy") if isinstance(plan, Mapping) else None
