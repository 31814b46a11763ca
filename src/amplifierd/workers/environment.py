"""The environment of a worker: what programs need, and the keys of providers, but no other secret."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from amplifier_system.homes import PREFIX
from amplifier_system.policy.environment_access import SECRET_VARIABLES

_PROVIDER_KEYS = ("*API_KEY*", "AZURE_*", "AWS_*", "GOOGLE_APPLICATION_*")
_NEEDED = ("PIP_*", "UV_*", "SSH_AUTH_SOCK")
"""What fetching and installing go by, with the access to private places that the owner gave them."""


def worker_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that a worker is started with. Those of the daemon itself stay with it."""
    return {name: value for name, value in environment.items() if _is_passed(name.upper())}


def _is_passed(name: str) -> bool:
    if name.startswith(PREFIX):
        return False
    if _fits(name, (*_PROVIDER_KEYS, *_NEEDED)):
        return True
    return not _fits(name, SECRET_VARIABLES)


def _fits(name: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)
