"""A conversation in the form of the Messages API, each message converted once.

What is made of a message does not depend on where it stands, and is kept for as long as the message is. What does
depend on that, like results that share a message or an id that comes again, is applied to the assembled list.
"""

import hashlib
import json
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.providers.messages import IdentityCache, NormalMessage, NormalResult
from amplifier_kit.types import Block

from .settings import family_of

logger = logging.getLogger(__name__)

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


# Blocks of a conversation in the form of the Messages API.


_UNSENDABLE = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,(.+)", re.DOTALL)
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_NAME_LENGTH = 128
_CALL_DIGEST_BYTES = 4

Lacking = Callable[[str], None]  # called with what could not be sent unchanged


def is_blank(block: Block) -> bool:
    """True if a block is text that says nothing, which the API refuses."""
    return block["type"] == "text" and not str(block.get("text") or "").strip()


def can_be_sent(data: Any) -> bool:
    """True if data is text as Unicode has it; of what is signed nothing can be cut out to make it so."""
    try:
        json.dumps(data, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def wire_id(call_id: str) -> str:
    """Return the id of a call as the API takes it; other vendors use more characters."""
    if call_id and not _UNSENDABLE.search(call_id):
        return call_id
    digest = hashlib.blake2b(call_id.encode("utf-8", "replace"), digest_size=_CALL_DIGEST_BYTES).hexdigest()
    return f"{_UNSENDABLE.sub('_', call_id)}_{digest}"


def wire_name(name: str) -> str:
    """Return the name of a called tool as the API takes it."""
    return _UNSENDABLE.sub("_", name)[:_NAME_LENGTH] or "unknown"


def user_block(block: Block, lacking: Lacking) -> Block | None:
    """Return a block of a user's message, None for one that is left out."""
    match block["type"]:
        case "text":
            return None if is_blank(block) else {"type": "text", "text": block["text"]}
        case "image":
            return image_block(block, lacking)
        case "document":
            return {key: value for key, value in block.items() if key != "cache_control"}
        case "thinking" | "redacted_thinking" | "reasoning":
            return None
        case kind:
            lacking(f"a block of type {kind!r}")
            return {"type": "text", "text": f"[a block of type {kind} that cannot be sent]"}


def assistant_block(block: Block) -> Block | None:
    """Return a block of the model's own message, None for one that is left out.

    Thinking goes back only with its signature: what another vendor's model thought would be refused.
    """
    match block["type"]:
        case "text":
            return None if is_blank(block) else {"type": "text", "text": block["text"]}
        case "thinking" if isinstance(block.get("signature"), str) and not block.get("content"):
            thought = {"type": "thinking", "thinking": block.get("thinking", ""), "signature": block["signature"]}
            return thought if can_be_sent(thought) else None
        case "redacted_thinking" if isinstance(block.get("data"), str):
            return {"type": "redacted_thinking", "data": block["data"]}
        case "tool_call":
            return {
                "type": "tool_use",
                "id": wire_id(block["id"]),
                "name": wire_name(block["name"]),
                "input": block["input"],
            }
        case "image":
            return {"type": "text", "text": "[an image]"}
        case kind:
            logger.debug("a block of type %s is not sent", kind)
            return None


def result_block(result: NormalResult, lacking: Lacking) -> Block:
    """Return what a tool answered: text, or text and images."""
    content: Any = result.text
    if result.images:
        text = [{"type": "text", "text": result.text}] if result.text.strip() else []
        content = [*text, *(image_block(image, lacking) for image in result.images)]
    block: Block = {"type": "tool_result", "tool_use_id": wire_id(result.call_id), "content": content}
    return {**block, "is_error": True} if result.is_error else block


def image_block(block: Block, lacking: Lacking) -> Block:
    """Return an image, or the words that stand for one the API would refuse."""
    source = _image_source(block.get("source"))
    if source is not None:
        return {"type": "image", "source": source}
    lacking("an image in a form that the API does not take")
    return {"type": "text", "text": "[an image that cannot be sent]"}


def _image_source(source: Any) -> Block | None:
    if not isinstance(source, dict):
        return None
    match source:
        case {"type": "base64", "data": str() as data}:
            media_type = source.get("media_type") or source.get("mime_type") or "image/jpeg"
            return _base64(media_type, data)
        case {"type": "url", "url": str() as url}:
            inline = _DATA_URL.fullmatch(url)
            return _base64(inline[1], inline[2]) if inline else {"type": "url", "url": url}
        case {"type": "file", "file_id": str() as file_id}:
            return {"type": "file", "file_id": file_id}
    return None


def _base64(media_type: str, data: str) -> Block | None:
    return {"type": "base64", "media_type": media_type, "data": data} if media_type in _IMAGE_TYPES and data else None


# Where a request's prompt may be cached: at most four markers, each after a part that will come again unchanged.
#
# One stands after the system's text, one after the tools, two in the conversation. Its tail may differ from request
# to request, because hooks add reminders that are not stored: how long that tail is, messages declare
# (`metadata.ephemeral`) or the previous request of the conversation shows.


_CONVERSATIONS = 32


@dataclass(slots=True)
class _Seen:
    """The latest request of a conversation, and how much of the one before it had changed at its end."""

    fingerprints: list[bytes]
    tail: int | None = None


class PromptCache:
    """Chooses the messages that carry a marker, and remembers what conversations looked like."""

    def __init__(self, *, infers_from_history: bool) -> None:
        self._infers_from_history = infers_from_history
        self._seen: OrderedDict[bytes, _Seen] = OrderedDict()

    def marked(self, conversation: Conversation) -> set[int]:
        """Return the places of the messages whose last block gets a marker, two at most."""
        messages = conversation.messages
        if len(messages) < 2:
            return set()
        tail = self._tail(conversation)
        if tail is None:
            return set()
        primary = _last_eligible(messages, len(messages) - tail)
        if primary is None:
            return set()
        secondary = _secondary(messages, primary)
        return {primary} if secondary is None else {primary, secondary}

    def _tail(self, conversation: Conversation) -> int | None:
        """Return how many messages at the end may not come again, None when nothing is known about that."""
        declared = _declared_tail(conversation.messages) if conversation.says_what_is_ephemeral else None
        if not self._infers_from_history:
            return declared
        observed, is_stranger = self._observe(conversation)
        if is_stranger:
            logger.warning("the conversation has nothing in common with its previous request; it is not cached")
            return None
        known = [tail for tail in (declared, observed) if tail is not None]
        return max(known, default=None)

    def _observe(self, conversation: Conversation) -> tuple[int | None, bool]:
        """Return how long the changed end of the previous request was, and whether all of it was different."""
        now = [message.fingerprint for message in conversation.messages]
        first = next((message for message in conversation.messages if not message.is_developer), None)
        begins = first.fingerprint if first is not None else b""
        key = hashlib.blake2b(conversation.system.encode("utf-8", "replace") + b"\0" + begins, digest_size=16).digest()
        before = self._seen.pop(key, None)
        seen = self._seen[key] = _Seen(now, before.tail if before else None)
        if len(self._seen) > _CONVERSATIONS:
            self._seen.popitem(last=False)
        if before is None or before.fingerprints == now:
            return seen.tail, False
        common = _common_prefix(before.fingerprints, now)
        seen.tail = len(before.fingerprints) - common
        return seen.tail, common == 0


def marker(*, ttl_1h: bool = False) -> dict[str, Any]:
    """Return a marker; what stands before it is cached for five minutes or an hour."""
    return {"type": "ephemeral", "ttl": "1h"} if ttl_1h else {"type": "ephemeral"}


def _common_prefix(before: list[bytes], now: list[bytes]) -> int:
    pairs = zip(before, now, strict=False)
    return next((place for place, (old, new) in enumerate(pairs) if old != new), min(len(before), len(now)))


def _declared_tail(messages: list[WireMessage]) -> int:
    tail = 0
    for distance, message in enumerate(reversed(messages), start=1):
        if message.is_results:
            break
        if message.is_ephemeral:
            tail = distance
    return tail


def _secondary(messages: list[WireMessage], primary: int) -> int | None:
    """Return the place of the marker that keeps the previous turn cached while this one grows."""
    places = range(len(messages))
    beginning = next((place for place in places if not messages[place].is_developer), None)
    user = next((place for place in reversed(places) if _is_real_user(messages[place])), None)
    if user is None:
        return None
    if user == beginning:
        place = primary - 2
        return place if place >= 0 and _is_eligible(messages, place) else None
    return _last_eligible(messages, min(user, primary))


def _is_real_user(message: WireMessage) -> bool:
    return message.is_real_user and not message.is_ephemeral


def _last_eligible(messages: list[WireMessage], end: int) -> int | None:
    return next((place for place in range(end - 1, -1, -1) if _is_eligible(messages, place)), None)


def _is_eligible(messages: list[WireMessage], place: int) -> bool:
    """True if the last block of a message can carry a marker."""
    last = messages[place].blocks[-1]
    if last["type"] in THINKING_BLOCKS or is_blank(last):
        return False
    is_answered = place + 1 < len(messages) and messages[place + 1].is_results
    return not (last["type"] == "tool_use" and is_answered)
