"""The environment of a worker: what programs need, and of all secrets only those that its sessions' plans ask for."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from amplifier_core.module_sources import ModuleSourceResolver
from amplifier_core.mount_plan import MountPlan
from amplifier_system.homes import PREFIX
from amplifier_system.policy.environment_access import SECRET_VARIABLES
from amplifierd.plans.injection import named_variables
from amplifierd.plans.module_declarations import key_variables

_NEEDED = ("PIP_*", "UV_*", "SSH_AUTH_SOCK", "SSH_AGENT_PID")
"""What fetching and installing go by, with the access to private places that the owner gave them."""


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every worker is started with. Those of the daemon itself stay with it."""
    return {name: value for name, value in environment.items() if not (_is_ours(name) or _is_secret(name))}


def secrets_for(
    plan: Mapping[str, Any], environment: Mapping[str, str], resolver: ModuleSourceResolver
) -> dict[str, str]:
    """Return the secret variables that the sessions of a plan need: those it names, and the keys of its modules."""
    agents = plan.get("agents")
    overlays = [agent for agent in agents.values() if isinstance(agent, Mapping)] if isinstance(agents, Mapping) else []
    entries = [entry for part in (plan, *overlays) for entry in MountPlan(part).entries()]
    wanted = {*named_variables(plan), *(name for entry in entries for name in key_variables(entry, resolver))}
    given = wanted & environment.keys()
    return {name: environment[name] for name in given if _is_secret(name) and not _is_ours(name)}


def _is_ours(name: str) -> bool:
    return name.startswith(PREFIX)


def _is_secret(name: str) -> bool:
    upper = name.upper()
    return _fits(upper, SECRET_VARIABLES) and not _fits(upper, _NEEDED)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
