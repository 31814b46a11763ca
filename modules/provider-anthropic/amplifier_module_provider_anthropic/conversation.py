"""A conversation in the form of the Messages API, each message converted once.

What is made of a message does not depend on where it stands, and is kept for as long as the message is. What does
depend on that, like results that share a message or an id that comes again, is applied to the assembled list.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.provider_cache import IdentityCache
from amplifier_kit.provider_messages import Block, NormalMessage

from .model_facts import family_of
from .wire_blocks import assistant_block, is_blank, result_block, user_block, wire_id

WIRE_METADATA = "anthropic"  # the key under which a response's metadata has what only this vendor understands
THINKING_BLOCKS = frozenset({"thinking", "redacted_thinking"})

_CONTINUATION = "(The conversation continues.)"
_DIGEST_BYTES = 12


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The blocks of one message on the wire, without markers, and a fingerprint to tell whether they changed."""

    blocks: tuple[Block, ...]
    fingerprint: bytes

    @classmethod
    def of(cls, blocks: Iterable[Block]) -> "Form":
        kept = tuple(blocks)
        text = json.dumps(kept, ensure_ascii=False, sort_keys=True, default=str)
        return cls(kept, hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).digest())


@dataclass(frozen=True, slots=True, eq=False)
class Converted:
    """What was made of one message: its plain form, and the vendor's own where a model of `family` wrote it."""

    plain: Form
    verbatim: Form | None = None
    family: str = ""
    lacks: tuple[str, ...] = ()

    def form(self, family: str) -> Form:
        return self.verbatim if self.verbatim is not None and self.family == family else self.plain


@dataclass(slots=True, eq=False)
class WireMessage:
    """One message of the request; `blocks` are shared with other requests and must not be changed."""

    role: str
    blocks: list[Block]
    fingerprint: bytes
    is_results: bool = False
    is_developer: bool = False
    is_real_user: bool = False
    is_ephemeral: bool = False


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
        conversation = Conversation(_system_text(messages), [])
        developer = [message for message in messages if message.role == "developer"]
        rest = [message for message in messages if message.role not in ("developer", "system")]
        assembly = _Assembly(conversation)
        for message in (*developer, *rest):
            converted = self._kept.get(message, _convert)
            assembly.add(message, converted.form(family))
            conversation.lacks += converted.lacks
            conversation.says_what_is_ephemeral |= "ephemeral" in message.metadata
        wire = conversation.messages
        if not wire or wire[0].role != "user":
            wire.insert(0, _wire_message("user", Form.of([{"type": "text", "text": _CONTINUATION}])))
        return conversation


class _Assembly:
    """Puts forms together: results that follow each other share a message, and every id is used once."""

    def __init__(self, conversation: Conversation) -> None:
        self._messages = conversation.messages
        self._times_used: dict[str, int] = {}
        self._renamed: dict[str, str] = {}  # of the latest message that calls tools

    def add(self, message: NormalMessage, form: Form) -> None:
        if not form.blocks:
            return
        if message.results:
            self._add_results(self._with_ids(form, "tool_use_id"))
            return
        if message.calls:
            self._take_ids(message)
            form = self._with_ids(form, "id")
        wire = _wire_message("assistant" if message.role == "assistant" else "user", form)
        wire.is_developer = message.role == "developer"
        wire.is_real_user = message.is_real_user
        metadata = message.metadata
        wire.is_ephemeral = bool(metadata.get("ephemeral")) and not metadata.get("persisted")
        self._messages.append(wire)

    def _add_results(self, form: Form) -> None:
        last = self._messages[-1] if self._messages else None
        if last is not None and last.is_results:
            last.blocks.extend(form.blocks)
            last.fingerprint += form.fingerprint
        else:
            self._messages.append(_wire_message("user", form))
            self._messages[-1].is_results = True

    def _take_ids(self, message: NormalMessage) -> None:
        """Rename the ids that an earlier message used, for this message and the results that follow it."""
        self._renamed = {}
        for call_id in dict.fromkeys(wire_id(call["id"]) for call in message.calls):
            times = self._times_used.get(call_id, 0)
            if times:
                self._renamed[call_id] = f"{call_id}_again_{times}"
            self._times_used[call_id] = times + 1

    def _with_ids(self, form: Form, key: str) -> Form:
        if not any(block.get(key) in self._renamed for block in form.blocks):
            return form
        renamed = self._renamed
        return Form.of(
            {**block, key: renamed[block[key]]} if block.get(key) in renamed else block for block in form.blocks
        )


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


def _wire_message(role: str, form: Form) -> WireMessage:
    return WireMessage(role, list(form.blocks), form.fingerprint)


def _system_text(messages: list[NormalMessage]) -> str:
    texts = (message.text for message in messages if message.role == "system")
    return "\n\n".join(text for text in texts if text.strip())


def _convert(message: NormalMessage) -> Converted:
    lacks: list[str] = []
    if message.role == "developer":
        text = f"<context_file>\n{message.text}\n</context_file>" if message.text.strip() else ""
        blocks: list[Block | None] = [{"type": "text", "text": text}] if text else []
    elif message.role == "assistant":
        blocks = [assistant_block(block) for block in _each_call_once(message.blocks)]
    else:
        blocks = [result_block(result, lacks.append) for result in message.results]
        blocks += [user_block(block, lacks.append) for block in message.blocks]
    plain = Form.of(block for block in blocks if block is not None)
    stored = message.metadata.get(WIRE_METADATA) if message.role == "assistant" else None
    if not isinstance(stored, dict) or (exact := _stored_blocks(stored, message)) is None:
        return Converted(plain, lacks=tuple(lacks))
    return Converted(plain, Form.of(exact), family_of(str(stored.get("model", ""))), tuple(lacks))


def _each_call_once(blocks: Iterable[Block]) -> list[Block]:
    seen: set[str] = set()
    kept = []
    for block in blocks:
        if block["type"] == "tool_call":
            if block["id"] in seen:
                continue
            seen.add(block["id"])
        kept.append(block)
    return kept


def _stored_blocks(stored: dict[str, Any], message: NormalMessage) -> list[Block] | None:
    """Return the vendor's own blocks of a message, None when there are none or the message was edited since."""
    content = stored.get("wire_content")
    if not isinstance(content, list) or not all(isinstance(block, dict) and "type" in block for block in content):
        return None
    calls = [block.get("id") for block in content if block["type"] == "tool_use"]
    text = "".join(str(block.get("text", "")) for block in content if block["type"] == "text")
    said = "".join(block["text"] for block in message.blocks if block["type"] == "text")
    if calls != [call["id"] for call in message.calls] or sanitize_text(text) != said:
        return None
    return [block for block in content if not is_blank(block)]
