"""What both APIs say in the same way inside messages: context files, images, and texts that stand for something."""

from collections.abc import Mapping
from typing import Any

from amplifier_kit.providers.messages import NormalMessage

THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})  # blocks that only the model has


def context_file(message: NormalMessage) -> str:
    """Return a developer's message as the file it is presented as."""
    return f"<context_file>\n{message.text}\n</context_file>"


def unanswered_tool_text(message: NormalMessage) -> str:
    """Return a tool's message that belongs to no call, as something a user could have said."""
    return f"[Tool: {message.name or 'unknown'}]\n{message.text}"


def image_url(block: Mapping[str, Any]) -> str | None:
    """Return the address of an image, the data itself if need be; None for a source that cannot be followed."""
    source = block.get("source")
    if not isinstance(source, Mapping):
        return None
    if source.get("type") == "base64" and isinstance(source.get("data"), str):
        return f"data:{source.get('media_type') or source.get('mime_type') or 'image/png'};base64,{source['data']}"
    return source["url"] if source.get("type") == "url" and isinstance(source.get("url"), str) else None


def placeholder(block: Mapping[str, Any]) -> str:
    """Return the text that stands for an image, or anything else, which cannot be sent."""
    if block["type"] != "image":
        return f"[{block['type']} omitted]"
    source = block.get("source")
    kind = source.get("type") if isinstance(source, Mapping) else None
    return f"[image omitted: {kind or 'unknown'} source]"
