"""A conversation in the form of the Messages API, each message converted once.

What is made of a message does not depend on where it stands, and is kept for as long as the message is. What does
depend on that, like results that share a message or an id that comes again, is applied to the assembled list.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.providers.identity_cache import IdentityCache
from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.types import Block

from .content_blocks import assistant_block, can_be_sent, is_blank, result_block, user_block, wire_id
from .model_facts import family_of

WIRE_METADATA = "anthropic"  # the key under which a response's metadata has what only this vendor understands
THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})

_CONTINUATION = "(The conversation continues.)"
_DIGEST_BYTES = 12
_ID_KEYS = ("id", "tool_use_id")


@dataclass(frozen=True, slots=True, eq=False)
class WireMessage:
    """One message of a request, without markers; `body` is shared with other requests and must not be changed.

    `fingerprint` tells whether it changed, `call_ids` are those of the tools that it calls.
    """

    body: dict[str, Any]
    fingerprint: bytes
    call_ids: tuple[str, ...] = ()
    is_results: bool = False
    is_developer: bool = False
    is_real_user: bool = False
    is_ephemeral: bool = False

    @classmethod
    def of(cls, role: str, blocks: Iterable[Block], **facts: Any) -> "WireMessage":
        kept = list(blocks)
        text = json.dumps(kept, ensure_ascii=False, sort_keys=True, default=str)
        digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).digest()
        return cls({"role": role, "content": kept}, digest, **facts)

    @property
    def blocks(self) -> list[Block]:
        blocks: list[Block] = self.body["content"]
        return blocks


@dataclass(frozen=True, slots=True, eq=False)
class Converted:
    """What was made of one message: its plain form, and the vendor's own where a model of `family` wrote it."""

    plain: WireMessage
    verbatim: WireMessage | None = None
    family: str = ""
    lacks: tuple[str, ...] = ()
    says_whether_ephemeral: bool = False

    def form(self, family: str) -> WireMessage:
        return self.verbatim if self.verbatim is not None and self.family == family else self.plain


@dataclass(slots=True)
class Conversation:
    """The conversation of one request: the system's text, the messages, and what could not be sent as it is."""

    system: str
    messages: list[WireMessage]
    lacks: list[str] = field(default_factory=list)
    says_what_is_ephemeral: bool = False


class ConversationConverter:
    """Turns messages in plain form into those of the API."""

    def __init__(self) -> None:
        self._kept: IdentityCache[Converted] = IdentityCache()

    def convert(self, messages: list[NormalMessage], model: str) -> Conversation:
        """Return the conversation for a request to `model`; calls and results are in order already."""
        family = family_of(model)
        developer = [message for message in messages if message.role == "developer"]
        rest = [message for message in messages if message.role not in ("developer", "system")]
        kept = self._kept.get_all(developer + rest, _convert)
        wire = _assembled(converted.form(family) for converted in kept)
        if not wire or wire[0].body["role"] != "user":
            wire.insert(0, WireMessage.of("user", [{"type": "text", "text": _CONTINUATION}]))
        return Conversation(
            _system_text(messages),
            wire,
            lacks=[lack for converted in kept for lack in converted.lacks],
            says_what_is_ephemeral=any(converted.says_whether_ephemeral for converted in kept),
        )


def _assembled(messages: Iterable[WireMessage]) -> list[WireMessage]:
    """Put messages together: empty ones go, results that follow each other share one, and every id is used once."""
    assembled: list[WireMessage] = []
    times_used: dict[str, int] = {}
    renamed: dict[str, str] = {}  # ids of the latest message that calls tools, which earlier messages used, too
    for message in messages:
        if not message.body["content"]:
            continue
        if message.call_ids:
            renamed = {one: f"{one}_again_{times_used[one]}" for one in message.call_ids if one in times_used}
            times_used |= {one: times_used.get(one, 0) + 1 for one in message.call_ids}
        if renamed:
            message = _with_ids(message, renamed)
        if message.is_results and assembled and assembled[-1].is_results:
            message = _joined(assembled.pop(), message)
        assembled.append(message)
    return assembled


def _with_ids(message: WireMessage, renamed: Mapping[str, str]) -> WireMessage:
    blocks = [
        {**block, **{key: renamed[block[key]] for key in _ID_KEYS if block.get(key) in renamed}}
        for block in message.blocks
    ]
    if blocks == message.blocks:
        return message
    other = WireMessage.of(message.body["role"], blocks)
    return replace(message, body=other.body, fingerprint=other.fingerprint)


def _joined(first: WireMessage, second: WireMessage) -> WireMessage:
    body = {**first.body, "content": [*first.blocks, *second.blocks]}
    return replace(first, body=body, fingerprint=first.fingerprint + second.fingerprint)


def without_thinking(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the messages of a request body without what models thought; a message of nothing else is left out."""
    kept = []
    for message in messages:
        content = message["content"]
        if message["role"] == "assistant" and isinstance(content, list):
            content = [block for block in content if block["type"] not in THINKING_BLOCKS]
        if content:
            kept.append({**message, "content": content})
    return kept


def _system_text(messages: list[NormalMessage]) -> str:
    texts = (message.text for message in messages if message.role == "system")
    return "\n\n".join(text for text in texts if text.strip())


def _convert(message: NormalMessage) -> Converted:
    lacks: list[str] = []
    if message.role == "developer":
        file = message.as_context_file
        blocks: list[Block | None] = [{"type": "text", "text": file}] if file else []
    elif message.role == "assistant":
        blocks = [assistant_block(block) for block in message.blocks]
    else:
        blocks = [result_block(result, lacks.append) for result in message.results]
        blocks += [user_block(block, lacks.append) for block in message.blocks]
    metadata = message.metadata
    facts: dict[str, Any] = {
        "call_ids": tuple(dict.fromkeys(wire_id(call["id"]) for call in message.calls)),
        "is_results": bool(message.results),
        "is_developer": message.role == "developer",
        "is_real_user": message.is_real_user,
        "is_ephemeral": bool(metadata.get("ephemeral")) and not metadata.get("persisted"),
    }
    role = "assistant" if message.role == "assistant" else "user"
    plain = WireMessage.of(role, (block for block in blocks if block is not None), **facts)
    converted = Converted(plain, lacks=tuple(lacks), says_whether_ephemeral="ephemeral" in metadata)
    stored = metadata.get(WIRE_METADATA) if role == "assistant" else None
    if not isinstance(stored, dict) or (exact := _stored_blocks(stored, message)) is None:
        return converted
    family = family_of(str(stored.get("model", "")))
    return replace(converted, verbatim=WireMessage.of(role, exact, **facts), family=family)


def _stored_blocks(stored: dict[str, Any], message: NormalMessage) -> list[Block] | None:
    """Return the vendor's own blocks of a message, None when there are none or the message was edited since."""
    content = stored.get("wire_content")
    if not isinstance(content, list) or not all(isinstance(block, dict) and "type" in block for block in content):
        return None
    calls = [block.get("id") for block in content if block["type"] == "tool_use"]
    text = "".join(str(block.get("text", "")) for block in content if block["type"] == "text")
    said = "".join(block["text"] for block in message.blocks if block["type"] == "text")
    if calls != [call["id"] for call in message.calls] or sanitize_text(text) != said or not can_be_sent(content):
        return None
    return [block for block in content if not is_blank(block)]
