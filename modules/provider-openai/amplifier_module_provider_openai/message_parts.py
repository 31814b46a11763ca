"""What both APIs say in the same way inside messages: images, and texts that stand for something."""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from amplifier_kit.providers.messages import NormalMessage
from amplifier_kit.types import Block

logger = logging.getLogger(__name__)

Part = dict[str, Any]

THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning"})  # blocks that only the model has


def unanswered_tool_text(message: NormalMessage) -> str:
    """Return a tool's message that belongs to no call, as something a user could have said; it is warned about."""
    logger.warning("provider-openai: a tool message without tool_call_id is sent as the user's: %s", message.name)
    return f"[Tool: {message.name or 'unknown'}]\n{message.text}"


def shown_parts(
    blocks: Iterable[Block], *, has_vision: bool, text: Callable[[str], Part], image: Callable[[str], Part]
) -> tuple[list[Part], frozenset[str]]:
    """Return what a user is shown to have said, and the kinds of blocks that a text had to stand in for.

    `text` and `image` return a part in an API's form.
    """
    parts: list[Part] = []
    lost: set[str] = set()
    for block in blocks:
        kind = block["type"]
        url = image_url(block) if has_vision and kind == "image" else None
        if url:
            parts.append(image(url))
        elif kind == "text":
            parts += [text(block["text"])] if block["text"] else []
        elif kind not in THOUGHTS:
            lost.add(kind)
            parts.append(text(placeholder(block)))
    return parts, frozenset(lost)


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
