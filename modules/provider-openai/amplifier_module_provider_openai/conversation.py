"""A conversation in the form of an API: what both APIs do with messages, and what each writes in its own way."""

import json
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from amplifier_core.llm_errors import InvalidToolCallError
from amplifier_kit.providers.messages import IdentityCache, NormalMessage, NormalResult
from amplifier_kit.types import Block

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message; `images` of a tool's result travel separately, `lost` are kinds of blocks that cannot be sent."""

    items: tuple[Item, ...] = ()
    images: tuple[Item, ...] = ()
    lost: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Conversation:
    """The instructions, what the developer adds, which is sent first, everything else in order, and what got lost."""

    instructions: str
    developer: list[Item]
    said: list[WireMessage]
    lost: frozenset[str]


class WireForm(ABC):
    """How an API writes messages."""

    @abstractmethod
    def text_part(self, text: str) -> Item: ...

    @abstractmethod
    def image_part(self, url: str) -> Item: ...

    @abstractmethod
    def user(self, parts: list[Item]) -> Item:
        """Return what a user says."""

    @abstractmethod
    def assistant(self, message: NormalMessage) -> Iterable[Item]:
        """Return what the model said and which tools it called."""

    @abstractmethod
    def results(self, results: Sequence[NormalResult], *, has_vision: bool) -> WireMessage:
        """Return the answers to tool calls."""

    def parts(self, blocks: Iterable[Block], *, has_vision: bool) -> tuple[list[Item], frozenset[str]]:
        """Return what a user is shown to have said, and the kinds of blocks that a text had to stand in for."""
        return shown_parts(blocks, has_vision=has_vision, text=self.text_part, image=self.image_part)

    def convert(self, message: NormalMessage, *, has_vision: bool) -> WireMessage:
        """Return a message as it is sent; one of the system's is empty, because instructions are sent separately."""
        if message.role == "system":
            return WireMessage()
        if message.role == "assistant":
            return WireMessage(tuple(self.assistant(message)))
        if message.role == "developer":
            return self._text(file) if (file := message.as_context_file) else WireMessage()
        if message.results:
            return self.results(message.results, has_vision=has_vision)
        if message.role == "tool":
            return self._text(unanswered_tool_text(message))
        parts, lost = self.parts(message.blocks, has_vision=has_vision)
        return WireMessage((self.user(parts),) if parts else (), lost=lost)

    def _text(self, text: str) -> WireMessage:
        return WireMessage((self.user([self.text_part(text)]),))


class ConversationConverter:
    """Converts messages, each once: its form is kept for as long as the message is."""

    def __init__(self, form: WireForm) -> None:
        self._form = form
        self._kept: dict[bool, IdentityCache[WireMessage]] = {True: IdentityCache(), False: IdentityCache()}

    def convert(self, messages: Sequence[NormalMessage], *, has_vision: bool) -> Conversation:
        """Return the messages, sorted by who is heard first."""
        instructions: list[str] = []
        developer: list[Item] = []
        said: list[WireMessage] = []
        convert = partial(self._form.convert, has_vision=has_vision)
        for message, wire in zip(messages, self._kept[has_vision].get_all(messages, convert), strict=True):
            if message.role == "system":
                instructions.append(message.text)
            elif message.role == "developer":
                developer += wire.items
            else:
                said.append(wire)
        lost = frozenset[str]().union(*(wire.lost for wire in said))
        return Conversation("\n\n".join(filter(None, instructions)), developer, said, lost)


# What both APIs say in the same way inside messages: images, and texts that stand for something.


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


_FENCE = re.compile(r"\A\s*```[a-zA-Z]*\s*\n?(.*?)\n?\s*```\s*\Z", re.DOTALL)
_STRING_OR_TRAILING_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)


def parse_arguments(tool_name: str, given: Any, **details: Any) -> dict[str, Any]:
    """Return the arguments as a dict; nothing at all means none.

    Code fences and trailing commas are forgiven. Anything else that is not a JSON object is an `InvalidToolCallError`:
    a call is never made with arguments that the model did not write.
    """
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    if isinstance(given, dict):
        return given
    raw = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    parsed = _parse(raw)
    if isinstance(parsed, dict):
        return parsed
    raise InvalidToolCallError(
        f"the model called {tool_name!r} with arguments that are not a JSON object: {raw[:200]}",
        tool_name=tool_name,
        raw_arguments=raw,
        **details,
    )


def _parse(raw: str) -> Any:
    unfenced = _FENCE.sub(r"\1", raw)
    for text in (
        raw,
        unfenced,
        _STRING_OR_TRAILING_COMMA.sub(lambda found: found[0] if found[0] != "," else "", unfenced),
    ):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            continue
    return None
