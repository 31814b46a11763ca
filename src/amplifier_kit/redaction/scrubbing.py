"""Data → data in which everything sensitive is masked, shared with the original as far as nothing was."""

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from itertools import islice
from operator import is_
from typing import Any

from amplifier_core.utils import json_safe

from .masking import DEFAULT_RULES, MASK, RULES, Rule, TextMasker, rules_named
from .named_secrets import is_secret_value, names_credentials, names_secret
from .protection import DEFAULT_ALLOWLIST, IDENTIFIER_KEYS, Allowlist, fits_shape, has_shape
from .secret_tokens import CREDENTIAL_VALUES

_NATIVE_TYPES = (str, int, float, bool, type(None), dict, list, tuple)
_NATIVE = frozenset(_NATIVE_TYPES)
_ATOMS = frozenset({int, float, bool, type(None)})
_CONTAINERS = (dict, list, tuple)
_LISTS = (list, tuple)
_MAX_MESSAGES = 16_384
_MAX_KEYS = 4096
_LONGEST_KEY = 64

MaskText = Callable[[str], str]


class Scrubber:
    """Scrubs data by rules and an allowlist, and each message of a conversation only once.

    The input is never changed: containers on the way to a masked value are copied, the rest is shared.
    """

    def __init__(self, rules: Sequence[Rule], allowlist: Iterable[str] = ()) -> None:
        self._masks_secrets = RULES["secrets"] in rules
        self._values = TextMasker(rules)
        self._names = TextMasker([rule for rule in rules if rule is not RULES["pii-basic"]])
        self._credentials = TextMasker([Rule("SECRET", CREDENTIAL_VALUES)])
        self._allowlist = Allowlist(DEFAULT_ALLOWLIST.union(allowlist))
        self._keys: dict[str, tuple[str | None, MaskText]] = {}
        self._messages: dict[int, tuple[Any, Any]] = {}  # the original is kept, so that its id stays its own

    def scrub(self, obj: Any, path: str = "") -> Any:
        """Return `obj` with everything masked; `path` is its place in the data that the allowlist refers to."""
        if path and self._allowlist.exempts(path):
            return obj
        return self._scrub(_native(obj), self._allowlist.narrowed(path) if path else path, self._values.mask)

    def forget_messages(self) -> None:
        """Let go of every message: those that come next are others."""
        self._messages.clear()

    def forget(self) -> None:
        """Let go of every message and text; scrubbing goes on as before."""
        self.forget_messages()
        self._keys.clear()
        for masker in (self._values, self._names, self._credentials):
            masker.forget()

    def _scrub(self, value: Any, path: str | None, mask: MaskText) -> Any:
        """Scrub a value at `path`, which is None where no exempt path can begin with it."""
        if isinstance(value, str):
            return mask(value)
        if isinstance(value, dict):
            return self._scrub_dict(value, path)
        if isinstance(value, _LISTS):
            return self._scrub_list(value, path)
        return value

    def _scrub_dict(self, entries: dict[Any, Any], path: str | None) -> dict[Any, Any]:
        scrubbed: dict[Any, Any] | None = None  # made when something is masked, which is seldom
        namesakes: dict[Any, int] = {}
        items, known, exempts = entries.items(), self._keys, self._allowlist.exempts
        for place, (key, value) in enumerate(items):
            below = None if path is None else f"{path}.{key}" if path else str(key)
            new_key, new_value = key, value
            if below is None or has_shape(key) or not exempts(below):
                shown, mask = known.get(key) or self._look_up(key)
                new_key = key if shown is None else shown
                if type(value) is str:
                    new_value = value if _is_protected(key, value) else mask(value)
                elif type(value) not in _ATOMS:
                    new_value = self._scrub_entry(key, _native(value), below, mask)
            if scrubbed is None:
                if new_key is key and new_value is value:
                    continue
                scrubbed = dict(islice(items, place))
            scrubbed[_numbered(new_key, scrubbed, namesakes)] = new_value
        return entries if scrubbed is None else scrubbed

    def _scrub_entry(self, key: Any, value: Any, path: str | None, mask: MaskText) -> Any:
        if not isinstance(value, _CONTAINERS) and _is_protected(key, value):
            return value
        path = self._allowlist.narrowed(path)
        if key == "messages" and path is None and isinstance(value, list):
            return _unless_same(value, [self._scrub_message(message) for message in value])
        return self._scrub(value, path, mask)

    def _scrub_list(self, items: Sequence[Any], path: str | None) -> Any:
        if path is None:
            return _unless_same(items, [self._scrub(_native(item), None, self._values.mask) for item in items])
        return _unless_same(items, [self._scrub_item(item, f"{path}[{index}]") for index, item in enumerate(items)])

    def _scrub_item(self, item: Any, path: str) -> Any:
        if self._allowlist.exempts(path):
            return item
        return self._scrub(_native(item), self._allowlist.narrowed(path), self._values.mask)

    def _scrub_message(self, message: Any) -> Any:
        known = self._messages.get(id(message))
        if known is None:
            if len(self._messages) >= _MAX_MESSAGES:
                self._messages.clear()
            known = self._messages[id(message)] = (message, self._scrub(_native(message), None, self._values.mask))
        return known[1]

    def _look_up(self, key: Any) -> tuple[str | None, MaskText]:
        """Return how a key is shown, None as it is, and how its text is masked."""
        if not isinstance(key, str):
            return None, self._values.mask
        shown = self._names.mask(key)
        looked_up = (None if shown == key else shown, self._mask_for(key))
        if len(key) <= _LONGEST_KEY:
            if len(self._keys) >= _MAX_KEYS:
                self._keys.clear()
            self._keys[key] = looked_up
        return looked_up

    def _mask_for(self, key: str) -> MaskText:
        name = MASK.sub("", key)  # the word SECRET in a mask makes no name
        if self._masks_secrets and names_secret(name):
            return self._mask_assigned
        if self._masks_secrets and names_credentials(name):
            return self._mask_credentials
        return self._values.mask

    def _mask_credentials(self, text: str) -> str:
        return self._values.mask(self._credentials.mask(text))

    def _mask_assigned(self, text: str) -> str:
        if not is_secret_value(text):
            return self._values.mask(text)
        mask = RULES["secrets"].mask
        return text if text == mask else mask


def scrub(obj: Any, rules: Iterable[str] = DEFAULT_RULES, allowlist: Iterable[str] = (), path: str = "") -> Any:
    """Return `obj` with everything masked that the named rules find; `allowlist` extends the one that is built in."""
    return Scrubber(rules_named(rules), allowlist).scrub(obj, path)


def _native(value: Any) -> Any:
    """Return a value as JSON has it, itself when it is one."""
    if type(value) in _NATIVE or (isinstance(value, _NATIVE_TYPES) and not isinstance(value, Enum)):
        return value
    return json_safe(value)


def _is_protected(key: Any, value: Any) -> bool:
    """Say whether a value is an identifier, or has the shape that the values of its key should have."""
    return key in IDENTIFIER_KEYS or (has_shape(key) and fits_shape(key, value))


def _unless_same(items: Sequence[Any], scrubbed: list[Any]) -> Any:
    """Return the original when nothing in it was masked."""
    return items if all(map(is_, items, scrubbed)) else scrubbed


def _numbered(key: Any, entries: dict[Any, Any], namesakes: dict[Any, int]) -> Any:
    """Return a key, with a number behind it when another one looks the same."""
    numbered = key
    while numbered in entries:
        namesakes[key] = namesakes.get(key, 1) + 1
        numbered = f"{key}#{namesakes[key]}"
    return numbered
