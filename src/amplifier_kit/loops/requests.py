"""Building a provider request from stored messages and mounted tools, each converted once."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_core import (
    ChatRequest,
    ChatResponse,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    Tool,
    ToolCallBlock,
    ToolSpec,
)
from amplifier_core.utils.assembly import assembled, with_parts
from amplifier_core.utils.tool_messages import field_of
from amplifier_core.utils.tool_schema import tool_schema
from amplifier_kit.messages.conversation import json_text
from amplifier_kit.types import JsonObject
from amplifier_kit.types import Message as StoredDict

logger = logging.getLogger(__name__)

_KNOWN_BLOCKS = frozenset({"text", "thinking", "redacted_thinking", "tool_call", "tool_result", "image", "reasoning"})
_SPARE_CONVERSIONS = 256
_BLOCK_TYPES = frozenset({TextBlock, ThinkingBlock, RedactedThinkingBlock, ToolCallBlock})
_RECORDED = {"role", "content", "tool_calls"}
_PLAIN_PROMPT = {"role", "content"}
_PLAIN_RESULT = {"role", "tool_call_id", "content"}
_NO_FIELDS = dict.fromkeys(Message.model_fields)


Stored = Message | StoredDict
"""A message as a context hands it out."""


class RequestBuilder:
    """Turns stored messages into `Message` objects and keeps them, by the identity of what is stored.

    Context managers hand out the same objects again and again, so a long history costs its conversion once. Stored
    messages are for reading only: one that is changed in place is not converted again.
    """

    def __init__(self) -> None:
        self._view: list[Stored] = []  # the messages of the last request
        self._converted: list[Message | None] = []  # and what became of them; None is left out
        self._has_gaps = False
        self._known: dict[int, tuple[Stored, Message | None]] = {}
        self._specs: dict[str, ToolSpec] = {}
        self._template: tuple[JsonObject, ChatRequest] | None = None

    def build(self, messages: Sequence[Stored], tools: Mapping[str, Tool], **options: Any) -> ChatRequest:
        """Return a request; `options` that are None are left to the provider."""
        parts: dict[str, object] = {"messages": self.convert(messages)}
        if tools:
            parts["tools"] = self.tool_specs(tools)
        if self._template is None or self._template[0] != options:
            given = {name: value for name, value in options.items() if value is not None}
            self._template = (options, ChatRequest(messages=[], **given))
        return with_parts(self._template[1], parts)

    def convert(self, messages: Sequence[Stored]) -> list[Message]:
        """Return the messages as the kernel's models; one that cannot be converted at all is left out."""
        start = self._count_unchanged(messages)
        if not start:
            self._has_gaps = False
        del self._view[start:], self._converted[start:]
        known, converted = self._known, self._converted
        for index, stored in enumerate(messages[start:], start):
            pair = known.get(id(stored))
            if pair is None or pair[0] is not stored:
                pair = known[id(stored)] = (stored, _convert(stored, index))
            message = pair[1]
            self._view.append(stored)
            converted.append(message)
            if message is None:
                self._has_gaps = True
        if len(known) > 2 * len(messages) + _SPARE_CONVERSIONS:
            self._known = {id(pair[0]): pair for pair in zip(self._view, self._converted, strict=True)}
        return [*filter(None, self._converted)] if self._has_gaps else [*self._converted]  # type: ignore[list-item]

    def expect(self, stored: StoredDict, response: ChatResponse) -> None:
        """Convert the message that records a response before it comes back from the context.

        Its blocks are the response's own, validated when that was made.
        """
        content = stored.get("content")
        if type(response) is not ChatResponse or type(content) is not list or not stored.keys() <= _RECORDED:
            return
        blocks = response.content
        if len(blocks) == len(content) and _BLOCK_TYPES.issuperset(map(type, blocks)):
            extra = {"tool_calls": stored["tool_calls"]} if "tool_calls" in stored else {}
            values = {**_NO_FIELDS, "role": stored["role"], "content": [*blocks]}
            self._known[id(stored)] = (stored, assembled(Message, values, stored, extra))

    def tool_specs(self, tools: Mapping[str, Tool]) -> list[ToolSpec]:
        """Return the specification of every tool as it is now."""
        return [self.tool_spec(name, tool) for name, tool in tools.items()]

    def tool_spec(self, name: str, tool: Tool) -> ToolSpec:
        """Return the specification of one tool; loops that know other forms override this."""
        description, schema = str(getattr(tool, "description", "") or ""), tool_schema(tool)
        spec = self._specs.get(name)
        if spec is None or spec.description != description or spec.parameters != schema:
            spec = self._specs[name] = ToolSpec(name=name, description=description, parameters=schema)
        return spec

    def _count_unchanged(self, messages: Sequence[Stored]) -> int:
        """Return how many messages at the beginning are those of the last request: usually all but a few."""
        count, step = min(len(self._view), len(messages)), 1
        if count == len(self._view) and messages[:count] == self._view:  # as nearly always
            return count
        while count and messages[:count] != self._view[:count]:
            count, step = max(0, count - step), 2 * step
        return count


def _convert(stored: Stored, index: int) -> Message | None:
    if type(stored) is not dict and isinstance(stored, Message):
        return stored
    try:
        content = stored.get("content")
        if type(content) is str and _is_plain(stored):
            return assembled(Message, {**_NO_FIELDS, **stored}, stored, {})
        fitting = _content(content)
        is_fit = fitting is content and type(stored) is dict
        return Message.model_validate(stored if is_fit else {**stored, "content": fitting})
    except (TypeError, AttributeError, ValueError):
        logger.debug("stored message %d does not fit as it is", index, exc_info=True)
    try:
        message = Message.model_validate(_reduced(stored))
    except (TypeError, AttributeError, KeyError, ValueError):
        logger.warning("stored message %d is unusable and left out of the request", index)
        return None
    logger.warning("stored message %d is malformed; its content is sent as text", index)
    return message


def _is_plain(stored: StoredDict) -> bool:
    """True if a message of text is a prompt or a tool's result and no more: there is nothing to validate."""
    role = stored.get("role")
    if role == "tool":
        return stored.keys() == _PLAIN_RESULT and type(stored["tool_call_id"]) is str
    return bool(role == "user" and stored.keys() == _PLAIN_PROMPT)


def _content(content: Any) -> Any:
    """Return content that a message may have; the very same when it fits as it is."""
    if content is None:
        return ""
    if not isinstance(content, list) or all(map(_is_known, content)):
        return content
    return [block if _is_known(block) else {"type": "text", "text": json_text(block)} for block in content]


def _is_known(block: object) -> bool:
    return field_of(block, "type") in _KNOWN_BLOCKS


def _reduced(stored: StoredDict) -> JsonObject:
    """Return a message with its content as text and nothing else but what pairs calls and results."""
    reduced = {"role": stored["role"], "content": json_text(stored.get("content"))}
    if stored.get("tool_calls"):
        reduced["tool_calls"] = stored["tool_calls"]
    if stored.get("tool_call_id"):
        reduced["tool_call_id"] = str(stored["tool_call_id"])
    return reduced
