"""Blocks of a conversation in the form of the Messages API."""

import hashlib
import json
import logging
import re
from collections.abc import Callable
from typing import Any

from amplifier_kit.providers.messages import NormalResult
from amplifier_kit.types import Block

logger = logging.getLogger(__name__)

_UNSENDABLE = re.compile(r"[^a-zA-Z0-9_-]")
_DATA_URL = re.compile(r"data:(image/[\w.+-]+);base64,(.+)", re.DOTALL)
_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_NAME_LENGTH = 128
_DIGEST_BYTES = 4

Lacking = Callable[[str], None]  # called with what could not be sent unchanged


def is_blank(block: Block) -> bool:
    """Say whether a block is text that says nothing, which the API refuses."""
    return block["type"] == "text" and not str(block.get("text") or "").strip()


def can_be_sent(data: Any) -> bool:
    """Say whether data is text as Unicode has it; of what is signed nothing can be cut out to make it so."""
    try:
        json.dumps(data, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError:
        return False
    return True


def wire_id(call_id: str) -> str:
    """Return the id of a call as the API takes it; other vendors use more characters."""
    if call_id and not _UNSENDABLE.search(call_id):
        return call_id
    digest = hashlib.blake2b(call_id.encode("utf-8", "replace"), digest_size=_DIGEST_BYTES).hexdigest()
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
