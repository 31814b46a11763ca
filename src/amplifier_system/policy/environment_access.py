"""Which variables of the environment programs of a session are given."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Self

SECRET_VARIABLES = (
    "*_KEY",
    "*_TOKEN",
    "*_SECRET",
    "*PASSWORD*",
    "*PASSWD*",
    "*_PASS",
    "*_PWD",
    "*_CREDENTIALS",
    "*_CREDENTIAL",
    "*_AUTH",
    "*_DSN",
    "*APIKEY*",
    "*API_KEY*",
    "*SECRET*",
    "*_ACCESS_KEY_ID",
    "AWS_*",
    "AZURE_*",
    "ARM_*",
    "GOOGLE_APPLICATION_*",
    "DATABASE_URL",
    "REDIS_URL",
    "MONGO*_URI",
    "SSH_AUTH_SOCK",
    "SSH_AGENT_PID",
    "GPG_AGENT_INFO",
    "NPM_CONFIG_*AUTH*",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "UV_INDEX_URL",
    "UV_EXTRA_INDEX_URL",
)
"""Names of variables that carry secrets, or lead to them."""


@dataclass(frozen=True, slots=True)
class EnvironmentAccess:
    """Patterns of names, in any case: what fits `passed` and no `denied` one is passed on."""

    passed: tuple[str, ...]
    denied: tuple[str, ...]

    def narrowed(self, passed: Sequence[str] | None, denied: Sequence[str]) -> Self:
        """Return the access that also keeps to these rules; a name is passed when both pass it."""
        kept = self.passed
        if passed is not None:
            kept = tuple(name for name in passed if name == "*" or _fits(name, self.passed, self.denied))
            kept += tuple(name for name in self.passed if name != "*" and _fits(name, tuple(passed), ()))
        kept = tuple(name for name in kept if name == "*" or _fits(name, ("*",), tuple(denied)))
        return replace(self, passed=kept, denied=(*self.denied, *denied))

    def filtered(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables that a program is given."""
        source = os.environ if environ is None else environ
        return {name: value for name, value in source.items() if _fits(name, self.passed, self.denied)}


@lru_cache(maxsize=4096)
def _fits(name: str, passed: tuple[str, ...], denied: tuple[str, ...]) -> bool:
    upper = name.upper()
    if any(fnmatchcase(upper, pattern.upper()) for pattern in denied):
        return name in passed  # a name that is passed by itself is meant
    return any(fnmatchcase(upper, pattern.upper()) for pattern in passed)
