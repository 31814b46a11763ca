"""Which variables of the environment programs of a session are given."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Self

from .passed_variables import PASSED_VARIABLES

SECRET_VARIABLES = (
    "*_KEY",
    "*TOKEN",
    "*_TOKENS",
    "*_PAT",
    "*PASSPHRASE*",
    "*WEBHOOK*",
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

_USUAL = tuple(PASSED_VARIABLES)
_OF_SHELLS = frozenset({"_", "OLDPWD", "SHLVL"})  # each shell sets its own
_PASSWORD_IN_URL = re.compile(r"://[^\s/?#@:]*:[^\s/?#]+@")


@dataclass(frozen=True, slots=True)
class ProgramEnvironment:
    """The variables that a program is given, and the names of those that are kept from it."""

    variables: dict[str, str]
    withheld: tuple[str, ...]


def has_password(value: str) -> bool:
    """Return whether a URL with a password stands in a value."""
    return "://" in value and _PASSWORD_IN_URL.search(value) is not None


@dataclass(frozen=True, slots=True)
class EnvironmentAccess:
    """Patterns of names, in any case: what every program needs and what fits `passed` is passed on.

    What fits a `denied` pattern, and a value that is a secret, is passed only where `passed` has its very name.
    """

    passed: tuple[str, ...]
    denied: tuple[str, ...]
    bounds: tuple[tuple[str, ...], ...] = ()
    """Further lists; what is passed beyond the usual fits one pattern of each."""

    def narrowed(self, passed: Sequence[str] | None, denied: Sequence[str]) -> Self:
        """Return the access that also keeps to these rules; a name is passed when both pass it."""
        kept = tuple(name for name in self.passed if name == "*" or not _is_any_of(name, tuple(denied)))
        bounds = self.bounds if passed is None else (*self.bounds, tuple(passed))
        return replace(self, passed=kept, denied=(*self.denied, *denied), bounds=bounds)

    def filtered(self, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return the variables that a program is given."""
        return self.divided(environ).variables

    def divided(
        self, environ: Mapping[str, str] | None = None, *, is_secret: Callable[[str], bool] = has_password
    ) -> ProgramEnvironment:
        """Return what a program is given and what is kept from it; `is_secret` judges a value besides its name."""
        given: dict[str, str] = {}
        withheld: list[str] = []
        for name, value in (os.environ if environ is None else environ).items():
            is_meant = name in self.passed and all(_is_any_of(name, bound) for bound in self.bounds)
            if is_meant or (_is_passed(name, self) and not is_secret(value)):
                given[name] = value
            elif name not in _OF_SHELLS:
                withheld.append(name)
        return ProgramEnvironment(given, tuple(sorted(withheld)))


@lru_cache(maxsize=4096)
def _is_passed(name: str, access: EnvironmentAccess) -> bool:
    if _is_any_of(name, access.denied):
        return False
    return _is_any_of(name, _USUAL) or all(_is_any_of(name, list_) for list_ in (access.passed, *access.bounds))


def _is_any_of(name: str, patterns: tuple[str, ...]) -> bool:
    upper = name.upper()
    return any(fnmatchcase(upper, pattern.upper()) for pattern in patterns)
