"""What a message says, and whether a person wrote it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def is_real_user_message(entry: Mapping[str, Any]) -> bool:
    """Say whether a person wrote it: it is neither a tool's result nor a `<system-reminder>`."""
    if entry.get("role") != "user" or "tool_call_id" in entry:
        return False
    return not any(text.strip().startswith("<system-reminder>") for text in texts_in(entry.get("content")))


def texts_in(content: Any) -> Iterator[str]:
    """Yield the texts of a message's content."""
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        for block in content:
            if isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str):
                yield block["text"]
