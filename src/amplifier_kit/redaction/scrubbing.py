"""Data → data in which everything sensitive is masked, shared with the original as far as nothing was."""

import re
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import is_
from typing import Any, NamedTuple

from amplifier_core.utils import json_safe

from .patterns import PatternSet, SensitivePattern, Span, find_unseen
from .personal_patterns import PII_PATTERNS
from .secret_patterns import CREDENTIAL_VALUES, SECRET_PATTERNS, is_secret_value, names_credentials, names_secret

# Text → text in which a label stands for whatever is sensitive.


DEFAULT_RULES = ("secrets", "pii-basic")

MASK = re.compile(r"\[REDACTED:[A-Z0-9_-]{1,32}\]")

_SHORTEST = 6  # a@b.cc
_MAX_ROUNDS = 8
_LONGEST_REMEMBERED = 64
_MAX_REMEMBERED = 4096


class Rule:
    """Patterns whose findings are masked with one label; none of them is shorter than `shortest`."""

    def __init__(self, label: str, patterns: Iterable[SensitivePattern], *, shortest: int = 1) -> None:
        self.mask = f"[REDACTED:{label}]"
        self.shortest = shortest
        self._patterns = PatternSet(patterns)

    def mask_once(self, text: str) -> str:
        """Return `text` with everything masked that is found in it now."""
        found = [*self._find(text), *find_unseen(text, self._find)]
        if not found:
            return text
        present = {match.span() for match in MASK.finditer(text)}  # they stay, unless more than they is to be masked
        pieces, done = [], 0
        for start, end in _joined([*found, *present]):
            if (start, end) not in present:
                pieces += [text[done:start], self.mask]
                done = end
        return "".join([*pieces, text[done:]])

    def _find(self, text: str) -> list[Span]:
        return [span for one in self._patterns.that_may_occur(text) for span in one.find(text)]


RULES = {
    "secrets": Rule("SECRET", SECRET_PATTERNS, shortest=_SHORTEST),
    "pii-basic": Rule("PII", PII_PATTERNS, shortest=_SHORTEST),
}


class TextMasker:
    """Masks text by rules, one after the other."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules
        self._shortest = min((rule.shortest for rule in rules), default=_SHORTEST)
        self._harmless: set[str] = set()  # short texts without anything to mask: most come again and again

    def mask(self, text: str) -> str:
        """Return `text` with masks in it, the very same object when there is nothing to mask.

        What stood beside a masked text may be recognised only then, so it is looked at again until nothing more is
        found; a text that does not come to rest is masked as a whole. Masking twice is therefore masking once.
        """
        if len(text) < self._shortest or text in self._harmless:
            return text
        for _ in range(_MAX_ROUNDS):
            masked = text
            for rule in self._rules:
                masked = rule.mask_once(masked)
            if masked == text:
                self._remember(text)
                return text
            text = masked
        return self._rules[0].mask

    def forget(self) -> None:
        """Let go of every text."""
        self._harmless.clear()

    def _remember(self, text: str) -> None:
        if len(text) <= _LONGEST_REMEMBERED:
            if len(self._harmless) >= _MAX_REMEMBERED:
                self._harmless.clear()
            self._harmless.add(text)


def mask_text(text: str, rules: Iterable[str] = DEFAULT_RULES) -> str:
    """Return `text` with everything masked that the named rules find."""
    return TextMasker(rules_named(rules)).mask(text)


def rules_named(names: Iterable[str]) -> list[Rule]:
    """Return the rules that go by these names, secrets first; a name that no rule has is left out."""
    wanted = set(names)
    return [rule for name, rule in RULES.items() if name in wanted]


def _joined(spans: list[Span]) -> list[Span]:
    """Return the spans in the order of the text, those that overlap made one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


_NATIVE_TYPES = (str, int, float, bool, type(None), dict, list, tuple)
_NATIVE = frozenset(_NATIVE_TYPES)
_ATOMS = frozenset({int, float, bool, type(None)})
_LISTS = (list, tuple)
_MAX_MESSAGES = 16_384
_MAX_KEYS = 4096
_LONGEST_KEY = 64

MaskText = Callable[[str], str]


class _Entry(NamedTuple):
    """What becomes of the entries of a key: how the key is shown, None as it is, and how their texts are masked.

    `path` leads to what is below them, None where no exempt path does; an exempt entry stays as it is.
    """

    shown: str | None
    mask: MaskText
    path: str | None
    is_exempt: bool = False


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
        self._entries: dict[str | None, dict[str, _Entry]] = {}  # by the path of their dict, and by their key
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
        self._entries.clear()
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
        known = self._entries.get(path)
        if known is None:
            known = self._entries[path] = {}
        changed: dict[Any, tuple[Any, Any]] = {}  # by key, as they are shown: mostly there are none
        for key, value in entries.items():
            shown, mask, below, is_exempt = known.get(key) or self._look_up(key, path, known)
            kind = type(value)
            if kind is str:
                masked = mask(value)
            elif kind in _ATOMS or is_exempt:
                masked = value
            else:
                masked = self._scrub_entry(key, _native(value), below, mask)
            if masked is not value or shown is not None:
                changed[key] = (key if shown is None else shown, masked)
        return _with_changes(entries, changed) if changed else entries

    def _scrub_entry(self, key: Any, value: Any, path: str | None, mask: MaskText) -> Any:
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

    def _look_up(self, key: Any, path: str | None, known: dict[str, _Entry]) -> _Entry:
        """Return what becomes of a key's entries in the dict at `path`; those of short names are `known` from then."""
        below = None if path is None else f"{path}.{key}" if path else str(key)
        shape = shape_of(key)
        if below is not None and shape is None and self._allowlist.exempts(below):
            entry = _Entry(None, _as_it_is, None, is_exempt=True)
        elif not isinstance(key, str):
            return _Entry(None, self._values.mask, self._allowlist.narrowed(below))
        else:
            shown, mask = self._names.mask(key), self._mask_for(key)
            if key in IDENTIFIER_KEYS:
                mask = _as_it_is
            elif shape is not None:
                mask = _unless_it_fits(shape, mask)
            entry = _Entry(None if shown == key else shown, mask, self._allowlist.narrowed(below))
        if isinstance(key, str) and len(key) <= _LONGEST_KEY:
            if len(known) >= _MAX_KEYS:
                known.clear()
            known[key] = entry
        return entry

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
        if not is_secret_value(MASK.sub("", text)):  # what is masked already keeps its mask
            return self._values.mask(text)
        return RULES["secrets"].mask


def scrub(obj: Any, rules: Iterable[str] = DEFAULT_RULES, allowlist: Iterable[str] = (), path: str = "") -> Any:
    """Return `obj` with everything masked that the named rules find; `allowlist` extends the one that is built in."""
    return Scrubber(rules_named(rules), allowlist).scrub(obj, path)


def _native(value: Any) -> Any:
    """Return a value as JSON has it, itself when it is one."""
    if type(value) in _NATIVE or (isinstance(value, _NATIVE_TYPES) and not isinstance(value, Enum)):
        return value
    return json_safe(value)


def _as_it_is(text: str) -> str:
    return text


def _unless_it_fits(shape: re.Pattern[str], mask: MaskText) -> MaskText:
    """Return what masks a text that does not have the shape of a date or a cost."""
    return lambda text: text if shape.fullmatch(text) else mask(text)


def _with_changes(entries: dict[Any, Any], changed: dict[Any, tuple[Any, Any]]) -> dict[Any, Any]:
    scrubbed: dict[Any, Any] = {}
    namesakes: dict[Any, int] = {}
    for key in entries:
        shown, masked = changed.get(key) or (key, entries[key])
        scrubbed[_numbered(shown, scrubbed, namesakes)] = masked
    return scrubbed


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


# What is never masked: identifiers, dates and costs that look like ones, and the paths of an allowlist.


IDENTIFIER_KEYS = frozenset(
    {
        "session_id",
        "parent_id",
        "parent",
        "parent_session_id",
        "sub_session_id",
        "tool_call_id",
        "parallel_group_id",
        "request_id",
        "span_id",
        "parent_span_id",
        "turn_id",
        "step_id",
    }
)
DEFAULT_ALLOWLIST = frozenset(
    {
        "session_id",
        "parent_id",
        "parent",
        "timestamp",
        "lvl",
        "level",
        "tool_name",
        "provider",
        "orchestrator",
        "status",
        "type",
        "ts",
        "seq",
        "turn_id",
        "span_id",
        "parent_span_id",
        "model",
        "usage.cost_usd",
        "working_dir",
    }
)

_TIME = r"[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?"
_DATE = re.compile(rf"\d{{4}}-\d\d-\d\d(?:{_TIME})?|\d{{9,10}}(?:\.\d{{1,9}})?|\d{{13}}|\d{{16}}|\d{{19}}", re.ASCII)
_COST = re.compile(r"[+-]?\d{1,30}(?:\.\d{1,30})?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_SHAPES = dict.fromkeys(("timestamp", "ts", "started_at", "ended_at", "created_at"), _DATE) | {"cost_usd": _COST}
_PATH_STEP = re.compile(r"\.|(?=\[)")


def shape_of(key: Any) -> re.Pattern[str] | None:
    """Return what the texts of a key should look like, whatever an allowlist says; None for most keys."""
    return _SHAPES.get(key)


class Allowlist:
    """Exact paths (`a.b`, `a[0]`), each of which exempts everything below it."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._paths = frozenset(paths)
        self._on_the_way = {
            path[: step.start()] for path in self._paths for step in _PATH_STEP.finditer(path) if step.start()
        }

    def exempts(self, path: str | None) -> bool:
        return path in self._paths

    def narrowed(self, path: str | None) -> str | None:
        """Return the path when it leads to an exempt one, else None: below it no path needs to be known."""
        return path if path in self._on_the_way else None
