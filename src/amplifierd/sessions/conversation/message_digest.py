"""One spelling for all messages, so that the same message has the same hash everywhere.

What a model is shown counts: role, content, tool calls, and the call that a result answers. Metadata does not. Calls in
content blocks and calls in `tool_calls` are the same calls, and a single block of plain text is that text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any, Literal, get_args

from amplifier_core.utils import json_safe
from amplifier_core.utils.tool_messages import CALL_BLOCKS, block_type, calls_in, field_of
from amplifier_kit.contexts.groups import COMPACTION_SOURCE
from amplifier_kit.contexts.shortening import STUB_START

CanonicalMessage = dict[str, Any]

_encode = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode


def canonical_message(message: object) -> CanonicalMessage:
    """Return a message, a dict or a model, in the one spelling."""
    role = str(field_of(message, "role"))
    spelled: CanonicalMessage = {"role": role, "content": _content(field_of(message, "content"), role)}
    if role == "assistant" and (calls := calls_in(message)):
        spelled["tool_calls"] = [{"id": call.id, "name": call.name, "arguments": call.arguments} for call in calls]
    if call_id := field_of(message, "tool_call_id"):
        spelled["tool_call_id"] = call_id
    return spelled


def canonical_json(value: object) -> bytes:
    """Return the same bytes for the same JSON value."""
    try:
        text = _encode(value)
    except (TypeError, ValueError):
        text = _encode(json_safe(value))
    return text.encode("utf-8", "surrogatepass")


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def message_digest(message: object) -> str:
    """Return the hash of what a model is shown of a message."""
    return digest(canonical_json(canonical_message(message)))


def _content(content: Any, role: str) -> Any:
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        return json_safe(content)
    is_call_list = role == "assistant"
    blocks = [_block(block) for block in content if not (is_call_list and block_type(block) in CALL_BLOCKS)]
    if len(blocks) == 1 and isinstance(blocks[0], dict) and blocks[0].keys() == {"type", "text"}:
        return blocks[0]["text"]
    return blocks or ""


def _block(block: object) -> Any:
    plain = block if isinstance(block, dict) else json_safe(block)
    return {key: value for key, value in plain.items() if value is not None} if isinstance(plain, dict) else plain


def shared_prefix(one: Sequence[object], other: Sequence[object]) -> int:
    """Return how many objects at the beginning of two lists are the very same."""
    same = list(map(is_, one, other))
    return len(same) if all(same) else same.index(False)


TranscriptMessage = Mapping[str, Any]


class TranscriptIndex:
    """The messages of one transcript by hash, by id, and results by their call; a later one wins."""

    def __init__(self, messages: Iterable[TranscriptMessage] = ()) -> None:
        self._by_digest: dict[str, TranscriptMessage] = {}
        self._by_id: dict[str, TranscriptMessage] = {}
        self._results: dict[str, TranscriptMessage] = {}
        for message in messages:
            self.add(message)

    def clear(self) -> None:
        """Forget everything: another transcript takes the place of this one."""
        for known in (self._by_digest, self._by_id, self._results):
            known.clear()

    def add(self, message: TranscriptMessage) -> None:
        """Take in a message that was appended to the transcript."""
        self._by_digest[message_digest(_as_sent(message))] = message
        self._by_id[str(message.get("id"))] = message
        if message.get("role") == "tool" and message.get("tool_call_id"):
            self._results[str(message["tool_call_id"])] = message

    def find(self, digest: str) -> TranscriptMessage | None:
        """Return the message with that hash."""
        return self._by_digest.get(digest)

    def find_id(self, message_id: str) -> TranscriptMessage | None:
        return self._by_id.get(message_id)

    def find_result(self, tool_call_id: str) -> TranscriptMessage | None:
        """Return the message that answers a tool call."""
        return self._results.get(tool_call_id)


def _as_sent(message: TranscriptMessage) -> TranscriptMessage:
    """Return a message with the role that it has in requests; a transcript knows fewer."""
    metadata = message.get("metadata")
    role = metadata.get("requested_role") if isinstance(metadata, Mapping) else None
    return {**message, "role": role} if isinstance(role, str) else message


# Where a message of a provider request comes from.


Kind = Literal[
    "instruction",
    "context_file",
    "mention",
    "inherited",
    "message",
    "injection",
    "compaction",
    "orchestrator",
    "other",
]
FindInjector = Callable[[str], tuple[str, str] | None]

ORIGIN = "origin"
"""The key of a message's metadata that says its origin outright: `{"kind": …, "path": …}`."""

_CONTEXT = re.compile(r"\[Context from ([^\n]+)\]\n")
_CONTEXT_FILE = re.compile(r'<context_file paths="([^"\n]+)">')
_REMINDER = re.compile(r'\s*<system-reminder source="([^"\n]+)">')
_KINDS: dict[Any, Kind] = {kind: kind for kind in get_args(Kind)} | {"context": "context_file"}
_SOURCES = ("sources", "mentions", "path", "profile", "bundle", "agent")


@dataclass(frozen=True, slots=True)
class Origin:
    """Why something is in a request: its kind, and the hook with its event or the files that it came from."""

    kind: Kind
    hook: str = ""
    event: str = ""
    sources: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        plain: dict[str, Any] = {"kind": self.kind}
        for name in ("hook", "event"):
            if value := getattr(self, name):
                plain[name] = value
        return {**plain, "sources": list(self.sources)} if self.sources else plain

    @classmethod
    def from_json(cls, value: object) -> Origin:
        given = value if isinstance(value, Mapping) else {}
        named = (given[key] for key in _SOURCES if given.get(key))
        sources = [str(one) for names in named for one in (names if isinstance(names, list | tuple) else [names])]
        hook, event = str(given.get("hook") or ""), str(given.get("event") or "")
        return cls(_KINDS.get(given.get("kind"), "other"), hook, event, tuple(sources))


MESSAGE = Origin("message")


def origin_of(role: str, text: str, metadata: Mapping[str, Any], find_injector: FindInjector) -> Origin:
    """Return the origin of a message that is not in the transcript."""
    if isinstance(declared := metadata.get(ORIGIN), Mapping):
        return Origin.from_json(declared)
    source = metadata.get("source")
    if source == COMPACTION_SOURCE or text.startswith(STUB_START):
        return Origin("compaction")
    if source == "hook" or metadata.get("ephemeral"):
        return injection(text, metadata, find_injector)
    if found := find_injector(text):
        return Origin("injection", *found)
    if header := _CONTEXT.match(text):
        sources = tuple(header[1].split(", "))
        return Origin(
            "mention" if any(source.startswith("@") for source in sources) else "context_file", "", "", sources
        )
    if reminder := _REMINDER.match(text):
        return Origin("orchestrator", sources=(reminder[1],))
    if role == "system":
        files = tuple(dict.fromkeys(_CONTEXT_FILE.findall(text)))
        return Origin("instruction", sources=files)
    return Origin("other")


def injection(text: str, metadata: Mapping[str, Any], find_injector: FindInjector) -> Origin:
    """Return the origin of a text that a hook injected."""
    hook, event = metadata.get("hook_name"), metadata.get("event")
    found = (str(hook), str(event or "")) if hook else find_injector(text)
    return Origin("injection", *(found or ("", str(event or ""))))
