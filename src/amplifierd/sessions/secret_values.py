"""The secrets of a session's surroundings, masked wherever they turn up in what we write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from amplifier_core.utils import SENSITIVE_KEYS
from amplifier_kit.redaction.masking import rules_named
from amplifier_kit.redaction.scrubbing import Scrubber

_NAMES = ("*_KEY", "*_TOKEN", "*_SECRET", "*PASSWORD*", "*_PASS", "*_PWD", "*_CREDENTIAL*")
_SHORTEST = 8  # shorter values are words that turn up by accident
MASK = "[REDACTED]"


class SecretValues:
    """Texts that must not be stored: keys of providers, and secret-looking values of the environment."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._scrubber = Scrubber(rules_named(("secrets",)))
        self.add(*values)

    def add(self, *values: str) -> None:
        """Take in further secrets; short ones are left out."""
        new = {value for value in values if len(value) >= _SHORTEST} - self._values
        if new:
            self._values |= new
            known = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile("|".join(re.escape(value) for value in known))

    def add_those_of(self, plan: Mapping[str, Any]) -> None:
        """Take in what a plan, its variables expanded, has under the names of secrets."""
        self.add(*_secrets_in(plan))

    @classmethod
    def of(cls, environment: Mapping[str, str], keys: Iterable[str] = ()) -> SecretValues:
        """Return the secrets of an environment, by the names of its variables, and further ones."""
        found = [value for name, value in environment.items() if any(fnmatchcase(name.upper(), p) for p in _NAMES)]
        return cls([*found, *keys])

    def masked(self, value: Any) -> Any:
        """Return plain data with every secret in its texts masked; the value itself when there is none."""
        return value if self._pattern is None else self._mask(value)

    def scrubbed(self, value: Any) -> Any:
        """Return plain data without these secrets, and without anything else that looks like one."""
        scrubbed = self._scrubber.scrub(value)
        self._scrubber.forget_messages()
        return self.masked(scrubbed)

    def _mask(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(MASK, value) if self._pattern is not None else value
        if isinstance(value, dict):
            return {key: self._mask(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._mask(item) for item in value]
        return value


def _secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str) and str(key).lower() in SENSITIVE_KEYS:
                yield inner
            else:
                yield from _secrets_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets_in(inner)
