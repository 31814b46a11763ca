"""Messages in the form of the Chat Completions API."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from amplifier_kit.providers.identity_cache import IdentityCache
from amplifier_kit.providers.messages import NormalMessage, NormalResult
from amplifier_kit.types import Block
from amplifier_module_provider_openai import message_parts, tools

Item = dict[str, Any]

_LONGEST_ID = 40


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message; `images` of a tool's result travel separately, `lost` are kinds of blocks that cannot be sent."""

    messages: tuple[Item, ...] = ()
    images: tuple[Item, ...] = ()
    lost: frozenset[str] = frozenset()


class MessageConverter:
    """Converts messages, each once: its form is kept for as long as the message is."""

    def __init__(self) -> None:
        self._kept: dict[bool, IdentityCache[WireMessage]] = {True: IdentityCache(), False: IdentityCache()}

    def convert(self, messages: Sequence[NormalMessage], *, has_vision: bool) -> tuple[list[Item], set[str]]:
        """Return the messages to send, and the kinds of blocks that got lost on the way."""
        system: list[str] = []
        developer: list[Item] = []
        said: list[Item] = []
        images: list[Item] = []
        lost: set[str] = set()
        wire_messages = self._kept[has_vision].get_all(messages, partial(_convert, has_vision=has_vision))
        for message, converted in zip(messages, wire_messages, strict=True):
            if message.role == "system":
                system.append(message.text)
                continue
            if not message.results:
                _add_images(said, images)
            (developer if message.role == "developer" else said).extend(converted.messages)
            images += converted.images
            lost |= converted.lost
        _add_images(said, images)
        instructions = "\n\n".join(filter(None, system))
        first = [{"role": "system", "content": instructions}] if instructions else []
        return first + developer + said, lost


def _add_images(said: list[Item], images: list[Item]) -> None:
    """Add the images of the results before, now that all of the calls are answered."""
    if images:
        said.append({"role": "user", "content": [_text_part("Images of the tool results:"), *images]})
        images.clear()


def _convert(message: NormalMessage, *, has_vision: bool) -> WireMessage:
    if message.role == "system":
        return WireMessage()
    if message.role == "assistant":
        return WireMessage(_assistant(message))
    if message.role == "developer":
        return WireMessage((_user(message_parts.context_file(message)),))
    if message.results:
        return _results(message.results, has_vision=has_vision)
    if message.role == "tool":
        return WireMessage((_user(message_parts.unanswered_tool_text(message)),))
    parts, lost = _parts(message.blocks, has_vision=has_vision)
    if len(parts) == 1 and parts[0]["type"] == "text":
        return WireMessage((_user(parts[0]["text"]),), lost=lost)
    return WireMessage((_user(parts),) if parts else (), lost=lost)


def _assistant(message: NormalMessage) -> tuple[Item, ...]:
    calls = [
        {
            "id": tools.call_id(call["id"], _LONGEST_ID),
            "type": "function",
            "function": {"name": tools.tool_name(call["name"]), "arguments": tools.arguments_text(call["input"])},
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
    lost: frozenset[str] = frozenset()
    for result in results:
        parts, lost_here = _parts(result.images, has_vision=has_vision)
        lost |= lost_here
        texts = [result.text, *(part["text"] for part in parts if part["type"] == "text")]
        images += [part for part in parts if part["type"] != "text"]
        call_id = tools.call_id(result.call_id, _LONGEST_ID)
        content = "\n".join(filter(None, texts))
        messages.append({"role": "tool", "tool_call_id": call_id, "content": content})
    return WireMessage(tuple(messages), tuple(images), lost)


def _parts(blocks: Iterable[Block], *, has_vision: bool) -> tuple[list[Item], frozenset[str]]:
    return message_parts.shown_parts(blocks, has_vision=has_vision, text=_text_part, image=_image_part)


def _user(content: Any) -> Item:
    return {"role": "user", "content": content}


def _text_part(text: str) -> Item:
    return {"type": "text", "text": text}


def _image_part(url: str) -> Item:
    return {"type": "image_url", "image_url": {"url": url}}
