"""One message of a provider request, as it is stored: where it comes from, and how its text is had again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from amplifier_core.utils.tool_messages import RESULT_ROLES, field_of
from amplifier_kit.messages.token_estimate import estimate_message
from amplifier_kit.redaction import scrub

from .message_digest import canonical_json, canonical_message, digest
from .message_origins import MESSAGE, FindInjector, Origin, injection, origin_of
from .transcript_index import TranscriptIndex

Scrub = Callable[[Any], Any]
"""Returns a value without the secrets in it."""

_SEED_CHARACTERS = 32
_MOST_ADDED_CHARACTERS = 4000


def scrub_secrets(value: Any) -> Any:
    """Return a value without what looks like a secret; addresses and numbers of people stay."""
    return scrub(value, rules=("secrets",))


@dataclass(frozen=True, slots=True)
class RequestPart:
    """A message of a request.

    `hash` is that of the message as it was sent. A message of the transcript is referred to by `message_id`; with
    `changed`, its text was sent in another form: `before`, the first `kept` characters, `after`. Anything else is kept
    without secrets under `stored`, the hash of what is kept.
    """

    hash: str
    role: str
    origin: Origin
    tokens: int
    message_id: str | None = None
    changed: Mapping[str, Any] | None = field(default=None, hash=False)
    stored: str | None = None

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"hash": self.hash, "role": self.role, "tokens": self.tokens}
        if self.origin != MESSAGE:
            plain["origin"] = self.origin.to_json()
        for name, value in (("message", self.message_id), ("changed", self.changed), ("stored", self.stored)):
            if value is not None:
                plain[name] = value
        return plain

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> RequestPart:
        origin = Origin.from_json(value["origin"]) if "origin" in value else MESSAGE
        return cls(
            str(value.get("hash")),
            str(value.get("role")),
            origin,
            int(value.get("tokens") or 0),
            value.get("message"),
            value.get("changed"),
            value.get("stored"),
        )


class PartMaker:
    """Makes the parts of one session's requests; `unsaved` is what has to be stored for them."""

    def __init__(self, transcript: TranscriptIndex, scrubbed: Scrub, find_injector: FindInjector) -> None:
        self._transcript, self._scrub, self._find_injector = transcript, scrubbed, find_injector
        self.unsaved: dict[str, bytes] = {}

    def make(self, message: Any) -> RequestPart:
        canonical = canonical_message(message)
        as_sent = digest(canonical_json(canonical))
        role, tokens = canonical["role"], estimate_message(canonical)
        given = field_of(message, "metadata")
        metadata = given if isinstance(given, Mapping) else {}
        content = canonical["content"]
        text = content if isinstance(content, str) else ""
        if known := self._transcript.find(as_sent):
            is_injected = metadata.get("source") == "hook"
            origin = injection(text, metadata, self._find_injector) if is_injected else MESSAGE
            return RequestPart(as_sent, role, origin, tokens, str(known["id"]))
        if role in RESULT_ROLES:
            return self._changed_result(canonical, as_sent, tokens)
        origin = origin_of(role, text, metadata, self._find_injector)
        return RequestPart(as_sent, role, origin, tokens, stored=self.keep(canonical))

    def keep(self, value: Any) -> str:
        """Have a value stored without its secrets; returns the hash under which it can be read."""
        data = canonical_json(self._scrub(value))
        name = digest(data)
        self.unsaved[name] = data
        return name

    def _changed_result(self, canonical: Mapping[str, Any], as_sent: str, tokens: int) -> RequestPart:
        """Describe a tool result that differs from the transcript's; what a tool said is never copied."""
        role, original = canonical["role"], self._transcript.find_result(str(canonical.get("tool_call_id")))
        if original is None:
            return RequestPart(as_sent, role, MESSAGE, tokens)
        changed = _difference(original.get("content"), canonical["content"])
        added = str(changed.get("after", "")).removeprefix("\n\n")
        is_injected = changed.get("before") == "" and self._find_injector(added) is not None
        origin = injection(added, {}, self._find_injector) if is_injected else Origin("compaction")
        return RequestPart(as_sent, role, origin, tokens, str(original["id"]), self._scrub(changed))


def _difference(original: object, sent: object) -> dict[str, Any]:
    """Say how a text was made of another: `before + original[:kept] + after`; nothing when it was made otherwise."""
    if not isinstance(original, str) or not isinstance(sent, str) or not original:
        return {}
    start = sent.find(original[:_SEED_CHARACTERS])
    if start < 0:
        return {}
    kept = _common_prefix(original, sent[start:])
    before, after = sent[:start], sent[start + kept :]
    if len(before) + len(after) > _MOST_ADDED_CHARACTERS:
        return {}
    return {"before": before, "kept": kept, "after": after}


def _common_prefix(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
