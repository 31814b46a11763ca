"""Where a provider request differs from a recorded one, and what differs only by its nature."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from amplifier_core.utils import json_safe
from amplifierd.sessions.conversation.message_digest import CanonicalMessage, canonical_json, canonical_message, digest
from amplifierd.sessions.layers.calls import ProviderCall
from amplifierd.sessions.layers.request_parts import Scrub, parameters_of

from .stored_requests import StoredPart, StoredRequest

_SHOWN_BEFORE = 40
_SHOWN = 240
_DENIED = "Denied"
_BY_NATURE = (
    (re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?)?(?:Z|[+-]\d\d:?\d\d)?"), "<time>"),
    (re.compile(r"\b\d\d?:\d\d(?::\d\d)?\b"), "<time>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first place in which a request differs: `field` is its name, `old` was recorded, `new` is sent now.

    For a message, `part` is its place in the request, and `role` and `origin` are those of the recorded one, else of
    the new one.
    """

    request: int
    turn: int
    field: str
    old: str | None
    new: str | None
    part: int | None = None
    role: str | None = None
    origin: Mapping[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        plain = {"request": self.request, "turn": self.turn, "field": self.field, "old": self.old, "new": self.new}
        if self.part is not None:
            plain |= {"part": self.part, "role": self.role, "origin": self.origin and dict(self.origin)}
        return plain

    def __str__(self) -> str:
        place = f"request {self.request} (turn {self.turn}), {self.field}"
        if self.part is not None:
            kind = f", {self.origin['kind']}" if self.origin else ""
            place += f" ({self.role}{kind})"
        old, new = ("nothing" if text is None else text for text in (self.old, self.new))
        return f"{place}\n  recorded: {old}\n  now:      {new}"


class RequestComparison:
    """Compares requests with recorded ones.

    `names` are texts that differ by nature, such as the ids and directories of the two sessions, with what stands for
    them. `scrub` takes out of a new message what was taken out of the recorded one before it was stored.
    """

    def __init__(self, scrub: Scrub, names: Mapping[str, str]) -> None:
        self._scrub = scrub
        self._names = sorted(names.items(), key=lambda pair: -len(pair[0]))

    def compare(self, recorded: StoredRequest, call: ProviderCall) -> list[Divergence]:
        """Return everything in which a call differs, one divergence for each field at most."""
        model = call.request.model or call.options.get("model") or getattr(call.provider, "default_model", None)
        plain = [("provider", recorded.provider, call.name), ("model", recorded.model, model)]
        found = [_field(recorded, name, _text(old), _text(new)) for name, old, new in plain if old != new]
        found += self._compare_tools(recorded, call)
        found += self._compare_parameters(recorded, call)
        found += self._compare_messages(recorded, [canonical_message(message) for message in call.request.messages])
        return found

    def normal(self, text: str) -> str:
        """Return a text without what differs by nature."""
        for name, stands_for in self._names:
            text = text.replace(name, stands_for)
        for pattern, stands_for in _BY_NATURE:
            text = pattern.sub(stands_for, text)
        return text

    def is_same(self, old: StoredPart, new: CanonicalMessage) -> bool:
        if old.part.hash == digest(canonical_json(new)):
            return True
        if old.message is None or old.part.role != new["role"]:
            return False
        if _are_denials(old.message, new):
            return True
        return self._spelled(old.message) == self._spelled(new)

    def _spelled(self, message: Mapping[str, Any]) -> str:
        return self.normal(canonical_json(self._scrub(dict(message))).decode("utf-8", "replace"))

    def _compare_tools(self, recorded: StoredRequest, call: ProviderCall) -> list[Divergence]:
        offered = [spec.model_dump(mode="json", exclude_none=True) for spec in call.request.tools or ()]
        old = {str(tool.get("name")): tool for tool in recorded.tools}
        new = {str(tool.get("name")): tool for tool in self._scrub(offered)}
        if list(old) != list(new):
            return [_field(recorded, "tools", ", ".join(old) or "none", ", ".join(new) or "none")]
        for name, tool in old.items():
            for key in sorted({*tool, *new[name]}):
                was, now = _text(tool.get(key)), _text(new[name].get(key))
                if was != now and self.normal(was or "") != self.normal(now or ""):
                    return [_field(recorded, f"tools.{name}.{key}", *cut(was, now))]
        return []

    def _compare_parameters(self, recorded: StoredRequest, call: ProviderCall) -> list[Divergence]:
        old, new = recorded.parameters, self._scrub(parameters_of(call))
        keys = [key for key in sorted({*old, *new}) if old.get(key) != new.get(key)]
        return [_field(recorded, f"parameters.{key}", _text(old.get(key)), _text(new.get(key))) for key in keys[:1]]

    def _compare_messages(self, recorded: StoredRequest, sent: Sequence[CanonicalMessage]) -> list[Divergence]:
        parts = recorded.parts
        for index in range(max(len(parts), len(sent))):
            old = parts[index] if index < len(parts) else None
            new = sent[index] if index < len(sent) else None
            if old is not None and new is not None and self.is_same(old, new):
                continue
            return [self._message(recorded, index, *self._aligned(parts, sent, index))]
        return []

    def _aligned(
        self, parts: Sequence[StoredPart], sent: Sequence[CanonicalMessage], index: int
    ) -> tuple[StoredPart | None, CanonicalMessage | None]:
        """Return what differs at a place: a message that came in or went away has nothing opposite it."""
        old = parts[index] if index < len(parts) else None
        new = sent[index] if index < len(sent) else None
        if old is not None and index + 1 < len(sent) and self.is_same(old, sent[index + 1]):
            return None, new
        if new is not None and index + 1 < len(parts) and self.is_same(parts[index + 1], new):
            return old, None
        return old, new

    def _message(
        self, recorded: StoredRequest, index: int, old: StoredPart | None, new: CanonicalMessage | None
    ) -> Divergence:
        was = None if old is None else _shown(old.message) if old.message else "(its text is not kept)"
        now = None if new is None else _shown(new)
        role = old.part.role if old is not None else str((new or {}).get("role"))
        return Divergence(
            recorded.number,
            recorded.turn,
            f"messages[{index}]",
            *cut(was, now and self._scrub(now)),
            part=index,
            role=role,
            origin=old.part.origin.to_json() if old is not None else None,
        )


def cut(old: str | None, new: str | None) -> tuple[str | None, str | None]:
    """Return two texts, both cut to the place where they begin to differ."""
    start = 0
    if old is not None and new is not None:
        while start < min(len(old), len(new)) and old[start] == new[start]:
            start += 1
    start = max(0, start - _SHOWN_BEFORE)
    return _window(old, start), _window(new, start)


def _window(text: str | None, start: int) -> str | None:
    if text is None:
        return None
    shown = text[start : start + _SHOWN]
    return f"{'…' if start else ''}{shown}{'…' if start + _SHOWN < len(text) else ''}"


def _field(recorded: StoredRequest, name: str, old: str | None, new: str | None) -> Divergence:
    return Divergence(recorded.number, recorded.turn, name, old, new)


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return canonical_json(json_safe(value)).decode("utf-8", "replace")


def _shown(message: Mapping[str, Any]) -> str:
    content = message.get("content")
    calls = [f"{call['name']}({_text(call['arguments'])})" for call in message.get("tool_calls") or ()]
    return " ".join(part for part in (_text(content), *calls) if part) or "(empty)"


def _are_denials(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """True if both answer one call with a denial; who said no, and why, is not part of a conversation's logic."""
    return all(
        message.get("role") == "tool" and str(message.get("content")).startswith(_DENIED) for message in (old, new)
    ) and old.get("tool_call_id") == new.get("tool_call_id")
