"""The words of a stored message."""

from __future__ import annotations

from typing import Any

_CALLS = ("tool_call", "tool_use", "tool_result", "thinking", "reasoning")


def message_text(content: Any) -> str:
    """Return the text of a message's content; an image stands as `[image]`."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    blocks = [block for block in content if isinstance(block, dict) and block.get("type") not in _CALLS]
    return "\n".join(
        str(block.get("text") if block.get("type") == "text" else f"[{block.get('type')}]") for block in blocks
    )
