"""The session's policy as modules ask for it: what may be read, written, reached and passed on."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from amplifier_kit.types import Coordinator
from amplifier_system.addresses import Address, canonical_host, is_public
from amplifier_system.policy import PolicyError, SessionPolicy

from .mounting import find_capability

__all__ = ["Address", "PolicyError", "SessionPolicy", "canonical_host", "is_public", "session_policy"]

_VARIABLES = ("HOME", "AMPLIFIERD_HOME", "AMPLIFIERD_CONFIG_DIR")  # where the secret places are
_OWN_LISTS_DECIDE = {"write": {"allow": ["/"]}, "network": {"allow": ["*", "private"]}}


def session_policy(coordinator: Coordinator, working_dir: Path) -> SessionPolicy:
    """Return the policy that the application set for this session.

    Where it set none, a module's own lists say what may be written and reached; secret places stay closed.
    """
    policy = find_capability(coordinator, "session.policy")
    if hasattr(policy, "check_read"):
        return policy  # type: ignore[no-any-return]  # the capability is defined to hold one
    return _default(working_dir, *map(os.environ.get, _VARIABLES))


@lru_cache(maxsize=64)
def _default(working_dir: Path, *variables: str | None) -> SessionPolicy:
    return SessionPolicy.of(_OWN_LISTS_DECIDE, working_dir=working_dir)
