"""Values made fit for JSON: what cannot be written is left out."""

import json
from collections.abc import Mapping
from typing import Any

_MESSAGE_DEPTH = 50


def sanitize_for_json(value: Any, *, max_depth: int = 50) -> Any:
    """Return `value` as plain data; what has no JSON form, or lies too deep, becomes `None`.

    In mappings and lists such values are left out altogether, `None` included. Objects are written by their
    attributes, or by `model_dump()` when they have none. What contains itself is left out where it does so.
    """
    return _sanitize(value, max_depth, set())


def sanitize_message(message: Any) -> dict[str, Any]:
    """Return a conversation's message as plain data, fit for a transcript.

    A vendor's `thinking_block` is kept as its text, under `thinking_text`; `content_blocks` are left out.
    """
    if not isinstance(message, Mapping):
        sanitized = sanitize_for_json(message)
        return sanitized if isinstance(sanitized, dict) else {}
    plain = {key: value for key, value in message.items() if key not in {"thinking_block", "content_blocks"}}
    if "thinking_block" in message:
        plain["thinking_text"] = _thinking_text(message["thinking_block"])
    return _without_nothing(plain, _MESSAGE_DEPTH, set())


def _sanitize(value: Any, max_depth: int, above: set[int]) -> Any:
    """Return a value as plain data; `above` has the identities of all that it lies in."""
    if max_depth <= 0:
        return None
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if id(value) in above or isinstance(value, type):
        return None
    above.add(id(value))
    try:
        return _sanitize_compound(value, max_depth - 1, above)
    finally:
        above.discard(id(value))


def _sanitize_compound(value: Any, max_depth: int, above: set[int]) -> Any:
    if isinstance(value, Mapping):
        return _without_nothing(value, max_depth, above)
    if isinstance(value, list | tuple):
        items = (_sanitize(item, max_depth, above) for item in value)
        return [item for item in items if item is not None]
    if hasattr(value, "__dict__"):
        return _sanitize(value.__dict__, max_depth, above)
    if hasattr(value, "model_dump"):
        return _sanitize(value.model_dump(), max_depth, above)
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return None
    return value


def _without_nothing(mapping: Mapping[Any, Any], max_depth: int, above: set[int]) -> dict[Any, Any]:
    pairs = ((key, _sanitize(value, max_depth, above)) for key, value in mapping.items())
    return {key: value for key, value in pairs if value is not None}


def _thinking_text(block: Any) -> Any:
    return block.get("text") if isinstance(block, Mapping) else getattr(block, "text", None)
