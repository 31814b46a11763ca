"""Shorter forms of messages for a request: clipped and truncated tool results, stubs of user messages.

Each returns a new message and leaves the given one alone; everything but the text stays as it is.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from amplifier_core.utils import json_safe
from amplifier_core.utils.tool_messages import RESULT_BLOCK
from amplifier_kit.messages.stored_messages import CHARACTERS_PER_TOKEN
from amplifier_kit.types import Message

STUBBED_FROM_CHARACTERS = 80
STUB_START = "[User message compacted - original: "

_STUB_CHARACTERS = 50
_TRUNCATED = "[truncated: ~"
_MAX_BYTES_PER_CHARACTER = 4


@dataclass(frozen=True, slots=True)
class ClippedResult:
    """A tool result cut to a number of bytes."""

    message: Message
    original_bytes: int
    clipped_bytes: int
    content_kind: str  # text or blocks


def clip_result(message: Message, max_bytes: int) -> ClippedResult | None:
    """Return a tool result with at most `max_bytes` of text, None when it has no more than that."""
    content = message.get("content")
    texts = [content] if message.get("role") == "tool" and isinstance(content, str) else _texts(message)
    if sum(map(len, texts)) * _MAX_BYTES_PER_CHARACTER <= max_bytes:
        return None
    original = sum(len(_encoded(text)) for text in texts)
    if original <= max_bytes:
        return None
    marker = (
        f"\n[clipped: the whole result has {original} bytes, more than fits here"
        " - read a narrower range or ask a more specific question]"
    )
    clipping = _Clipping(max_bytes - len(_encoded(marker)), marker)
    clipped = _map_texts(message, clipping)
    kind = "blocks" if isinstance(content, list) else "text"
    return ClippedResult(clipped, original, clipping.kept_bytes, kind)


class _Clipping:
    """Keeps texts one after the other until the room is used up, then ends with a marker."""

    def __init__(self, room: int, marker: str) -> None:
        self.kept_bytes = 0
        self._room = room
        self._marker = marker

    def __call__(self, text: str) -> str:
        if self._room < 0:
            return ""
        data = _encoded(text)
        if len(data) > self._room:
            text = data[: self._room].decode("utf-8", "ignore") + self._marker
            self._room = -1
        else:
            self._room -= len(data)
        self.kept_bytes += len(_encoded(text))
        return text


def truncate_result(message: Message, characters: int) -> Message:
    """Return a tool result of which only the first `characters` of each text are left."""

    def truncate(text: str) -> str:
        if len(text) <= characters or text.startswith(_TRUNCATED):
            return text
        tokens = len(text) // CHARACTERS_PER_TOKEN
        return f"{_TRUNCATED}{tokens} tokens - call tool again if needed] {text[:characters]}..."

    return _map_texts(message, truncate)


def stub_user_message(message: Message) -> Message:
    """Return a user message of which only the beginning is left."""
    beginning = _user_text(message)[:_STUB_CHARACTERS].replace("\r\n", " ").replace("\n", " ").replace("\r", " ")
    return {**message, "content": f'{STUB_START}"{beginning}..."]'}


def is_long_user_message(message: Message) -> bool:
    """True if a stub would lose something of a user message: many characters, or what is not text."""
    content = message.get("content")
    has_other_blocks = isinstance(content, list) and any(not _is_text(block) for block in content)
    return has_other_blocks or len(_user_text(message)) > STUBBED_FROM_CHARACTERS


def _user_text(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(block["text"] for block in content if _is_text(block))
    return content if isinstance(content, str) else ""


def _texts(message: Message) -> list[str]:
    texts: list[str] = []

    def note(text: str) -> str:
        texts.append(text)
        return text

    _map_texts(message, note)
    return texts


def _map_texts(message: Message, change: Callable[[str], str]) -> Message:
    """Return a tool result with each of its texts changed.

    In a message that is not wholly a result (its role is not `tool`) only the result blocks are changed.
    """
    content = message.get("content")
    if message.get("role") == "tool":
        return {**message, "content": _map_content(content, change)}
    if not isinstance(content, list):
        return message
    return {**message, "content": [_map_result_block(block, change) for block in content]}


def _map_content(content: Any, change: Callable[[str], str]) -> Any:
    if content is None:
        return None
    if isinstance(content, str):
        return change(content)
    if not isinstance(content, list):
        text = json.dumps(json_safe(content), ensure_ascii=False)
        changed = change(text)
        return content if changed == text else changed
    mapped = []
    for block in content:
        if not _is_text(block):
            mapped.append(_map_result_block(block, change))
        elif (text := change(block["text"])) or not block["text"]:  # vendors refuse a text block that became empty
            mapped.append({**block, "text": text})
    return mapped


def _map_result_block(block: Any, change: Callable[[str], str]) -> Any:
    if not (isinstance(block, dict) and block.get("type") == RESULT_BLOCK):
        return block
    return {**block, **{key: _map_content(block[key], change) for key in ("content", "output") if key in block}}


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")
