"""One spelling for all messages, so that the same message has the same hash everywhere.

What a model is shown counts: role, content, tool calls, and the call that a result answers. Metadata does not. Calls in
content blocks and calls in `tool_calls` are the same calls, and a single block of plain text is that text.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from amplifier_core.utils import json_safe
from amplifier_core.utils.tool_messages import CALL_BLOCKS, block_type, calls_in, field_of

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
