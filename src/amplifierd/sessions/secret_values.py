"""The secrets of a session's surroundings, masked wherever they turn up in what we write."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from amplifier_core.utils import SENSITIVE_KEYS, redact_secrets
from amplifier_kit.redaction.masking import TextMasker, rules_named
from amplifier_kit.redaction.named_secrets import names_credentials, names_secret
from amplifier_kit.redaction.scrubbing import Scrubber

_NAMES = ("*_KEY", "*_TOKEN", "*_SECRET", "*PASSWORD*", "*_PASS", "*_PWD", "*_CREDENTIAL*")
_SHORTEST = 8  # shorter values are words that turn up by accident
_MOST_KEYS = 4096
_STAMP = "redaction"  # by which hooks-redaction says what it did
MASK = "[REDACTED]"


class SecretValues:
    """Texts that must not be stored: keys of providers, and secret-looking values of the environment."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        rules = rules_named(("secrets",))
        self._scrubber, self._masker = Scrubber(rules), TextMasker(rules)
        self._keys: dict[str, bool] = {}  # whether they name secrets: most come again and again
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
        if self._pattern is None:
            return value
        texts, _ = _texts_and_keys(value)
        return self._mask(value) if self._pattern.search(texts) else value

    def cleaned(self, value: Any, *, by_name: bool) -> tuple[Any, Any]:
        """Return plain data as it may be told, without these secrets, and as it is stored: without others either.

        `by_name` takes out whatever has the name of a secret as well. Most data has nothing to mask: it is looked at
        as a whole, and only taken apart where that finds something.
        """
        texts, keys = _texts_and_keys(value)
        is_named = any(map(self._is_secret_name, keys))
        told = redact_secrets(value) if is_named and by_name else value
        if self._pattern is not None and self._pattern.search(texts):
            told = self._mask(told)
        return told, self.scrubbed(told) if is_named or self._masker.mask(texts) is not texts else told

    def _is_secret_name(self, key: str) -> bool:
        known = self._keys.get(key)
        if known is None:
            if len(self._keys) >= _MOST_KEYS:
                self._keys.clear()
            known = key.lower() in SENSITIVE_KEYS or names_secret(key) or names_credentials(key)
            self._keys[key] = known
        return known

    def scrubbed(self, value: Any) -> Any:
        """Return plain data without these secrets, and without anything else that looks like one."""
        scrubbed = self._scrubber.scrub(value)
        self._scrubber.forget_messages()
        return scrubbed if self._pattern is None else self._mask(scrubbed)

    def _mask(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._pattern.sub(MASK, value) if self._pattern is not None else value
        if isinstance(value, dict):
            return {key: self._mask(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._mask(item) for item in value]
        return value


def _texts_and_keys(value: Any) -> tuple[str, set[str]]:
    """Return all texts of plain data, each in lines of its own, and the keys that have texts."""
    texts: list[str] = []
    keys: set[str] = set()
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            texts.append(one)
        elif isinstance(one, dict):
            for key, inner in one.items():
                if type(inner) is str:
                    keys.add(key)
                    texts.append(inner)
                elif inner and key != _STAMP:
                    left.append(inner)
        elif isinstance(one, list | tuple):
            left.extend(one)
    return "\n".join(texts), keys


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
