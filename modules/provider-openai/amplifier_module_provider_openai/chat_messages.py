"""Messages in the form of the Chat Completions API."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from amplifier_kit.provider_cache import IdentityCache
from amplifier_kit.provider_messages import Block, NormalMessage, NormalResult

from . import wire

logger = logging.getLogger(__name__)

Item = dict[str, Any]

_LONGEST_ID = 40


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message; `images` are those of a tool's result, which travel separately."""

    messages: tuple[Item, ...] = ()
    images: tuple[Item, ...] = ()
    has_lost_image: bool = False


class MessageConverter:
    """Converts messages, each once: its form is kept for as long as the message is."""

    def __init__(self) -> None:
        self._kept: dict[bool, IdentityCache[WireMessage]] = {True: IdentityCache(), False: IdentityCache()}

    def convert(self, messages: Iterable[NormalMessage], *, has_vision: bool) -> tuple[list[Item], bool]:
        """Return the messages to send, and whether an image got lost on the way."""
        kept = self._kept[has_vision]
        system: list[str] = []
        developer: list[Item] = []
        said: list[Item] = []
        images: list[Item] = []
        has_lost_image = False
        for message in messages:
            if message.role == "system":
                system.append(message.text)
                continue
            if not message.results:
                _add_images(said, images)
            converted = kept.get(message, lambda source: _convert(source, has_vision=has_vision))
            (developer if message.role == "developer" else said).extend(converted.messages)
            images += converted.images
            has_lost_image = has_lost_image or converted.has_lost_image
        _add_images(said, images)
        instructions = "\n\n".join(filter(None, system))
        first = [{"role": "system", "content": instructions}] if instructions else []
        return first + developer + said, has_lost_image


def _add_images(said: list[Item], images: list[Item]) -> None:
    """Add the images of the results before, now that all of the calls are answered."""
    if images:
        said.append({"role": "user", "content": [_text_part("Images of the tool results:"), *images]})
        images.clear()


def _convert(message: NormalMessage, *, has_vision: bool) -> WireMessage:
    if message.role == "assistant":
        return WireMessage(_assistant(message))
    if message.role == "developer":
        return WireMessage((_user(wire.context_file(message)),))
    if message.results:
        return _results(message.results, has_vision=has_vision)
    if message.role == "tool":
        logger.warning("provider-openai: a tool message without tool_call_id is sent as the user's: %s", message.name)
        return WireMessage((_user(wire.unanswered_tool_text(message)),))
    parts, is_lost = _parts(message.blocks, has_vision=has_vision)
    if len(parts) == 1 and parts[0]["type"] == "text":
        return WireMessage((_user(parts[0]["text"]),), has_lost_image=is_lost)
    return WireMessage((_user(parts),) if parts else (), has_lost_image=is_lost)


def _assistant(message: NormalMessage) -> tuple[Item, ...]:
    calls = [
        {
            "id": wire.call_id(call["id"], _LONGEST_ID),
            "type": "function",
            "function": {"name": wire.tool_name(call["name"]), "arguments": wire.arguments_text(call["input"])},
        }
        for call in message.calls
    ]
    text = message.text
    if not text and not calls:
        return ()
    said: Item = {"role": "assistant", "content": text or None}
    return ({**said, "tool_calls": calls} if calls else said,)


def _results(results: tuple[NormalResult, ...], *, has_vision: bool) -> WireMessage:
    messages: list[Item] = []
    images: list[Item] = []
    is_lost = False
    for result in results:
        parts, lost = _parts(result.images, has_vision=has_vision)
        is_lost = is_lost or lost
        texts = [result.text, *(part["text"] for part in parts if part["type"] == "text")]
        images += [part for part in parts if part["type"] != "text"]
        call_id = wire.call_id(result.call_id, _LONGEST_ID)
        content = "\n".join(filter(None, texts))
        messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
    return WireMessage(tuple(messages), tuple(images), is_lost)


def _parts(blocks: Iterable[Block], *, has_vision: bool) -> tuple[list[Item], bool]:
    parts: list[Item] = []
    is_lost = False
    for block in blocks:
        if block["type"] == "text" and block["text"]:
            parts.append(_text_part(block["text"]))
        elif block["type"] == "image":
            url = wire.image_url(block) if has_vision else None
            is_lost = is_lost or url is None
            image = {"type": "image_url", "image_url": {"url": url}}
            parts.append(image if url else _text_part(wire.image_placeholder(block)))
    return parts, is_lost


def _user(content: Any) -> Item:
    return {"role": "user", "content": content}


def _text_part(text: str) -> Item:
    return {"type": "text", "text": text}
