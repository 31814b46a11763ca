"""The session's policy as modules ask for it: what may be read, written, reached and passed on."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from amplifier_system.homes import HOME_VARIABLES
from amplifier_system.policy import DeniedBelow, NetworkAccess, PolicyError, SessionPolicy
from amplifier_system.urls import Address, canonical_host, is_public

from .mounting import find_capability

__all__ = [
    "Address",
    "DeniedBelow",
    "NetworkAccess",
    "PolicyError",
    "SessionPolicy",
    "canonical_host",
    "is_public",
    "planned_rules",
    "session_policy",
]

_OWN_LISTS_DECIDE = {"write": {"allow": ["/"]}, "network": {"allow": ["*", "private"]}}


def session_policy(coordinator: Any, working_dir: Path) -> SessionPolicy:
    """Return the session's policy: what the application set, else what the plan says.

    Where neither says anything, a module's own lists say what may be written and reached; secret places stay closed.
    """
    policy = find_capability(coordinator, "session.policy")
    if hasattr(policy, "check_read"):
        return policy  # type: ignore[no-any-return]  # the capability is defined to hold one
    rules = planned_rules(coordinator)
    return _of(json.dumps(rules, default=str) if rules else "", working_dir, *map(os.environ.get, HOME_VARIABLES))


def planned_rules(coordinator: Any) -> Any:
    """Return `session.policy` of the plan, None where there is none."""
    plan = getattr(coordinator, "config", None)
    session = plan.get("session") if isinstance(plan, Mapping) else None
    return session.get("policy") if isinstance(session, Mapping) else None


@lru_cache(maxsize=64)
def _of(rules: str, working_dir: Path, *variables: str | None) -> SessionPolicy:
    return SessionPolicy.of(json.loads(rules) if rules else _OWN_LISTS_DECIDE, working_dir=working_dir)
