"""The secrets of a session's surroundings, masked wherever they turn up in what we write."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from amplifier_core.utils import SENSITIVE_KEYS, redact_secrets
from amplifier_kit.redaction.masking import TextMasker, rules_named
from amplifier_kit.redaction.named_secrets import names_credentials, names_secret
from amplifier_kit.redaction.patterns import Span, find_unseen
from amplifier_kit.redaction.scrubbing import Scrubber

from .plain_data import PlainData

_NAMES = ("*_KEY", "*TOKEN", "*SECRET", "*PASSWORD*", "*PASSPHRASE*", "*_PASS", "*_PWD", "*_PAT", "*_CREDENTIAL*")
_SHORTEST = 8  # shorter values are words that turn up by accident
_MOST_REMEMBERED = 4096
_LONGEST_REMEMBERED = 64
MASK = "[REDACTED]"
_URL_SAFE = str.maketrans("+/", "-_")


class SecretValues:
    """Texts that must not be stored: keys of providers, and secret-looking values of the environment."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values: set[str] = set()
        self._pattern: re.Pattern[str] | None = None
        self._encoded: list[str] = []
        rules = rules_named(("secrets",))
        self._scrubber, self._masker = Scrubber(rules), TextMasker(rules)
        self._harmless_keys: set[str] = set()  # that name no secrets: most come again and again
        self._harmless_texts: set[str] = set()  # as do many short texts
        self.add(*values)

    def add(self, *values: str) -> None:
        """Take in further secrets; short ones are left out."""
        new = {value for value in values if len(value) >= _SHORTEST} - self._values
        if new:
            self._values |= new
            self._harmless_texts.clear()
            known = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile("|".join(re.escape(value) for value in known))
            self._encoded = sorted({text for value in known for text in _in_base64(value)}, key=len, reverse=True)

    def add_those_of(self, plan: Mapping[str, Any]) -> None:
        """Take in what a plan, its variables expanded, has under the names of secrets."""
        self.add(*_secrets_in(plan))

    @classmethod
    def of(cls, environment: Mapping[str, str], keys: Iterable[str] = ()) -> SecretValues:
        """Return the secrets of an environment, by the names of its variables, and further ones."""
        found = [value for name, value in environment.items() if any(fnmatchcase(name.upper(), p) for p in _NAMES)]
        return cls([*found, *keys])

    def masked(self, value: Any) -> Any:
        """Return plain data with every secret in its texts masked."""
        return value if self._pattern is None else self._mask(value)

    def are_in(self, texts: Sequence[str], keys: Sequence[str]) -> bool:
        """Say whether one of these secrets is in some texts, or one of the keys of the texts names a secret."""
        return self._names_one(keys) or (self._pattern is not None and bool(self._spans("\n".join(texts))))

    def may_be_in(self, texts: Sequence[str], keys: Sequence[str]) -> bool:
        """Say whether anything in some texts looks like a secret.

        Most data has none: that of many events is looked at as a whole, and only taken apart where something is found.
        """
        known = self._harmless_texts
        new = [text for text in texts if len(text) > _LONGEST_REMEMBERED or text not in known]
        joined = "\n".join(new)
        if self.are_in(new, keys) or self._masker.mask(joined) is not joined:
            return True
        if len(known) >= _MOST_REMEMBERED:
            known.clear()
        known.update([text for text in new if len(text) <= _LONGEST_REMEMBERED])
        return False

    def cleaned(self, data: PlainData, *, by_name: bool) -> tuple[Any, Any]:
        """Return plain data as it may be told, without these secrets, and as it is stored: without others either.

        `by_name` takes out whatever has the name of a secret as well.
        """
        texts, is_named = "\n".join(data.texts), self._names_one(data.keys)
        told = self.masked(redact_secrets(data.value) if is_named and by_name else data.value)
        return told, self.scrubbed(told) if is_named or self._masker.mask(texts) is not texts else told

    def _names_one(self, keys: Sequence[str]) -> bool:
        return not self._harmless_keys.issuperset(keys) and any([self._is_secret_name(key) for key in keys])

    def _is_secret_name(self, key: str) -> bool:
        if key in self._harmless_keys:
            return False
        if key.lower() in SENSITIVE_KEYS or names_secret(key) or names_credentials(key):
            return True
        if len(self._harmless_keys) >= _MOST_REMEMBERED:
            self._harmless_keys.clear()
        self._harmless_keys.add(key)
        return False

    def scrubbed(self, value: Any) -> Any:
        """Return plain data without these secrets, and without anything else that looks like one."""
        scrubbed = self._scrubber.scrub(value)
        self._scrubber.forget_messages()
        return scrubbed if self._pattern is None else self._mask(scrubbed)

    def _mask(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._mask_text(value)
        if isinstance(value, dict):
            return {key: self._mask(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self._mask(item) for item in value]
        return value

    def _mask_text(self, text: str) -> str:
        pieces, done = [], 0
        for start, end in sorted(self._spans(text)):
            if start >= done:
                pieces += [text[done:start], MASK]
            done = max(done, end)
        return "".join([*pieces, text[done:]]) if done else text

    def _spans(self, text: str) -> list[Span]:
        return [*self._find(text), *find_unseen(text, self._find)]

    def _find(self, text: str) -> list[Span]:
        """Return where these secrets are, as they are and in base64."""
        found = [match.span() for match in self._pattern.finditer(text)] if self._pattern is not None else []
        for encoded in self._encoded:  # plain searches, since every text of every event comes by
            if encoded in text:
                found += [match.span() for match in re.finditer(re.escape(encoded), text)]
        return found


def _in_base64(value: str) -> Iterator[str]:
    """Yield what base64 makes of a text wherever it stands in other bytes, in both alphabets.

    The characters at both ends that depend on its neighbours are left out.
    """
    data = value.encode("utf-8", "surrogatepass")
    for before in range(3):
        encode = base64.b64encode(bytes(before) + data).decode()
        whole = encode[-(-before * 8 // 6) : (before + len(data)) * 8 // 6]
        yield whole
        yield whole.translate(_URL_SAFE)


def _secrets_in(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if isinstance(inner, str) and (str(key).lower() in SENSITIVE_KEYS or names_secret(str(key))):
                yield inner
            else:
                yield from _secrets_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _secrets_in(inner)
