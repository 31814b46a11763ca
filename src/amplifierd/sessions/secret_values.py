"""The secrets of a session's surroundings, masked wherever they turn up in what we write."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from math import isfinite
from typing import Any, NamedTuple

from amplifier_core.utils import SENSITIVE_KEYS, json_safe, redact_secrets
from amplifier_kit.redaction import mask_text, scrub
from amplifier_kit.redaction.patterns import Span, find_unseen
from amplifier_kit.redaction.scrubbing import Scrubber, TextMasker, rules_named
from amplifier_kit.redaction.secret_patterns import names_credentials, names_secret
from amplifierd.store.protocol import StoredEvent
from amplifierd.store.record import SessionRecord

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
        """True if one of these secrets is in some texts, or one of the keys of the texts names a secret."""
        return self._names_one(keys) or (self._pattern is not None and bool(self._spans("\n".join(texts))))

    def may_be_in(self, texts: Sequence[str], keys: Sequence[str]) -> bool:
        """True if anything in some texts looks like a secret.

        Most data has none: that of many events is looked at as a whole, and only taken apart where something is found.
        """
        known = self._harmless_texts
        new = [text for text in texts if text not in known]
        joined = "\n".join(new)
        if self.are_in([joined], keys) or self._masker.mask(joined) is not joined:
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
        found = self.masked(redact_secrets(data.value) if is_named and by_name else data.value)
        return found, self.scrubbed(found) if is_named or self._masker.mask(texts) is not texts else found

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


# Event data as plain JSON data, and the texts in it: every event of every session comes by here.


_ATOMS = frozenset({bool, type(None)})
_TEXT = frozenset({str})
_EXACT = 1 << 64  # smaller whole numbers stay as they are
_DEEPEST = 32  # what is nested deeper may be a cycle


class PlainData(NamedTuple):
    """A copy that JSON can say, all texts in it, and the keys that have texts."""

    value: dict[str, Any]
    texts: list[str]
    keys: list[str]


class _NotPlainError(Exception):
    pass


def plain_data(data: Mapping[str, Any]) -> PlainData:
    """Return data as `json_safe` does; what is plain already, as nearly everything, is copied in one go."""
    plain = PlainData({}, [], [])
    try:
        _copy_dict(data, plain, _DEEPEST, plain.value)
    except _NotPlainError:
        plain = PlainData({}, [], [])
        _copy_dict(json_safe(data), plain, None, plain.value)
    return plain


def _copy_dict(data: Mapping[Any, Any], plain: PlainData, deepest: int | None, copy: dict[str, Any]) -> dict[str, Any]:
    copy.update(data)
    if not _TEXT.issuperset(map(type, copy)):
        raise _NotPlainError
    _, texts, keys = plain
    for key, item in data.items():
        kind = type(item)
        if kind is str:
            keys.append(key)
            texts.append(item)
        elif kind not in _ATOMS and not (kind is int and -_EXACT < item < _EXACT):
            copy[key] = _copied(item, kind, plain, deepest)
    return copy


def _copied(item: Any, kind: type, plain: PlainData, deepest: int | None) -> Any:
    """Return a copy of what is nested in data, a number as it is."""
    if kind is dict or kind is list:
        if deepest is not None:
            if not deepest:
                raise _NotPlainError
            deepest -= 1
        return _copy_dict(item, plain, deepest, {}) if kind is dict else _copy_list(item, plain, deepest)
    if deepest is None or (kind is int and -_EXACT < item < _EXACT) or (kind is float and isfinite(item)):
        return item
    raise _NotPlainError


def _copy_list(items: list[Any], plain: PlainData, deepest: int | None) -> list[Any]:
    if _TEXT.issuperset(map(type, items)):
        plain.texts.extend(items)
        return items[:]
    copy = []
    for item in items:
        kind = type(item)
        if kind is str:
            plain.texts.append(item)
        elif kind not in _ATOMS:
            item = _copied(item, kind, plain, deepest)
        copy.append(item)
    return copy


# A session without what must not leave its home: keys and everything that looks like one.


_RULES = ("secrets",)
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_FREE_TEXT = ("name", "metadata", "error_message", "error_details", "last_error", "load_warnings")


def masked(value: Any) -> Any:
    """Return plain data in which the values of secret names, and texts in the formats of secrets, are masked."""
    return scrub(redact_secrets(value), rules=_RULES)


def with_masked_data(events: Sequence[StoredEvent]) -> list[StoredEvent]:
    """Return events whose data is masked; what the store itself wrote about them stays as it is."""
    data = masked([event.get("data") for event in events])
    return [{**event, "data": shown} for event, shown in zip(events, data, strict=True)]


def shown_record(record: SessionRecord) -> dict[str, Any]:
    """Return the fields of a record, with masks where applications and errors put text of their own."""
    fields = record.model_dump(mode="json")
    fields |= {name: masked(fields[name]) for name in _FREE_TEXT}
    return {**fields, "settings_overrides": without_secrets(record.settings_overrides)}


def without_secrets(plan: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan that can still be run: keys are left out rather than masked, so that others can take their place.

    What only names a variable, `${MY_KEY}`, stays.
    """
    return {key: _without(value) for key, value in plan.items() if not _is_secret(key, value)}


def _without(value: Any) -> Any:
    if isinstance(value, Mapping):
        return without_secrets(value)
    if isinstance(value, list):
        return [_without(item) for item in value]
    if isinstance(value, str) and not _VARIABLE.fullmatch(value):
        return mask_text(value, _RULES)
    return value


def _is_secret(key: Any, value: Any) -> bool:
    if not isinstance(value, str) or _VARIABLE.fullmatch(value):
        return False
    assignment = f'{key}="{value}"'
    return str(key).lower() in SENSITIVE_KEYS or mask_text(assignment, _RULES) != assignment
