"""The shapes of a conversation: what a response says, which tools it calls, and the messages that record it."""

import json
import logging
import uuid
from collections.abc import Collection
from typing import Any, cast

from amplifier_core import ChatResponse, TextBlock, ToolCall, ToolCallBlock, ToolResult, Usage
from amplifier_core.utils import json_safe
from amplifier_core.utils.serialize import sanitize_text
from amplifier_core.utils.tool_messages import (
    CALL_BLOCKS,
    RESULT_BLOCK,
    RESULT_ROLES,
    Call,
    block_type,
    field_of,
    has_result_blocks,
    read_call,
    read_result,
    results_in,
)
from amplifier_kit.types import Block, EventData, JsonObject, Message

# The text of a tool's result: of what a tool returned, of what is stored, and of what hooks put in its place.


logger = logging.getLogger(__name__)

Content = str | list[Block]


def as_tool_result(returned: object) -> ToolResult:
    """Return what a tool returned as a result; anything else is the output of a success."""
    return returned if isinstance(returned, ToolResult) else ToolResult(success=True, output=returned)


def result_content(result: ToolResult) -> Content:
    """Return what the model is shown: the result's blocks when it has some, so that images reach it, else its text."""
    if result.content:
        return [block.model_dump(exclude_none=True) for block in result.content]
    return result_text(result)


def result_text(result: ToolResult) -> str:
    """Return the text of a result; an output that the kernel cannot serialize is converted first."""
    try:
        return result.get_serialized_output()
    except (TypeError, ValueError):
        logger.debug("a tool's output is not JSON", exc_info=True)
        return json_text(result.output)


def output_text(output: object) -> str:
    """Return the text of a stored result's output: a string as it is, else its text blocks, else compact JSON."""
    if output is None:
        return ""
    if isinstance(output, str):
        return sanitize_text(output)
    if isinstance(output, list):
        texts = [field_of(block, "text") for block in output if block_type(block) == "text"]
        if texts:
            return sanitize_text("".join(text for text in texts if isinstance(text, str)))
        if output and all(block_type(block) == "image" for block in output):
            return ""
    return sanitize_text(json.dumps(json_safe(output), ensure_ascii=False, separators=(",", ":")))


def json_text(value: object) -> str:
    """Return any value as JSON; a string stays as it is."""
    return value if isinstance(value, str) else json.dumps(json_safe(value), ensure_ascii=False)


def replaced_content(data: EventData, sent: object) -> str | None:
    """Return the content that hooks put in place of a result, None when they left it alone.

    The very object that was sent is unchanged, without a look inside.
    """
    for key in ("result", "tool_result"):
        value = data.get(key)
        if value is not None and value is not sent and value != sent:
            return _content_from(value)
    return None


def _content_from(value: object) -> str:
    if isinstance(value, dict) and "success" in value and "output" in value:
        try:
            return result_text(ToolResult(success=value["success"], output=value["output"], error=value.get("error")))
        except ValueError:
            logger.debug("a replaced tool result is not well-formed", exc_info=True)
    if isinstance(value, dict | list):
        return json_text(value)
    return str(value)


_SEQUENCES = (list, tuple)


def read_calls(calls: object) -> list[Call]:
    """Return a response's tool calls, in whatever spelling they are given; one without an id is given one."""
    return [_read_call(call) for call in calls] if isinstance(calls, _SEQUENCES) else []


def _read_call(call: object) -> Call:
    if isinstance(call, ToolCall):
        return Call(call.id or _new_call_id(), call.name, call.arguments)
    read = read_call(call)
    read.id = read.id or _new_call_id()
    return read


def _new_call_id() -> str:
    return f"call_{uuid.uuid4().hex}"


def block_dict(block: object) -> Block:
    """Return a content block as a dict with everything it carries."""
    if isinstance(block, dict):
        return block
    if type(block) is TextBlock and not block.model_extra:
        return dict(vars(block))  # what `model_dump` returns, at a fraction of its price
    if type(block) is ToolCallBlock:
        return block.model_dump()
    for method in ("model_dump", "to_dict"):
        if callable(dump := getattr(block, method, None)) and isinstance(dumped := dump(), dict):
            return dumped
    safe = json_safe(block)
    return safe if isinstance(safe, dict) else {"type": "text", "text": str(safe)}


class ForeignResponse:
    """A response of another shape, a dict or an object, with the fields of the kernel's: what it lacks is None."""

    def __init__(self, given: object) -> None:
        self.given = given

    def __getattr__(self, name: str) -> Any:
        return field_of(self.given, name)


def as_response(returned: object) -> ChatResponse:
    """Return what a provider returned as something that has a response's fields."""
    return returned if isinstance(returned, ChatResponse) else cast(ChatResponse, ForeignResponse(returned))


def as_returned(response: ChatResponse) -> ChatResponse:
    """Return a response in the shape in which its provider returned it, for that provider itself to read."""
    return cast(ChatResponse, response.given) if isinstance(response, ForeignResponse) else response


def display_blocks(response: ChatResponse) -> list[object]:
    """Return the blocks that a response carries for display beside its content."""
    blocks = extra_field(response, "content_blocks")
    return list(blocks) if isinstance(blocks, _SEQUENCES) else []


def content_blocks(response: ChatResponse) -> list[object]:
    """Return the blocks of a response's content; text alone has none."""
    content = response.content
    return list(content) if isinstance(content, _SEQUENCES) else []


def extra_field(response: ChatResponse, name: str) -> Any:
    """Return what a response may carry beyond the kernel's own fields, None when it does not."""
    if type(response) is ChatResponse:  # which takes microseconds to say that it lacks a field
        return (response.model_extra or {}).get(name)
    return getattr(response, name, None)


def usage_of(response: ChatResponse) -> JsonObject | None:
    """Return what a response says it used, as JSON data."""
    usage = response.usage
    if usage is None:
        return None
    if type(usage) is Usage and not usage.model_extra:
        return usage.model_dump(mode="json", warnings=False)
    safe = json_safe(usage)
    return safe if isinstance(safe, dict) else None


def text_of(content: object, separator: str = "\n\n") -> str:
    """Return the text of a message or a response: its text blocks only, separated by a blank line."""
    if isinstance(content, str):
        return content
    if not isinstance(content, _SEQUENCES):
        return ""
    texts = [field_of(block, "text") for block in content if block_type(block) == "text"]
    return separator.join([text for text in texts if isinstance(text, str) and text])


def has_call_blocks(content: object) -> bool:
    """True if a response's content itself holds tool calls."""
    return isinstance(content, _SEQUENCES) and not CALL_BLOCKS.isdisjoint(map(block_type, content))


def user_message(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant_message(response: ChatResponse, text: str, calls: list[Call]) -> Message:
    """Return the message that records a response with its blocks, in the order the model gave them.

    A block that calls a tool stays only if it is among the calls that will be answered. Metadata, by which a vendor may
    know the response again, is recorded only with the whole of it.
    """
    answered = {call.id for call in calls}
    content = response.content if isinstance(response.content, list) else []
    blocks = [
        block_dict(block)
        for block in content
        if block_type(block) not in CALL_BLOCKS or field_of(block, "id") in answered
    ]
    message: Message = {"role": "assistant", "content": blocks or text}
    if calls:
        message["tool_calls"] = [call.to_dict() for call in calls]
    metadata = response.metadata
    if metadata and isinstance(metadata, dict) and len(blocks) == len(content):
        message["metadata"] = metadata
    return message


def tool_message(call: Call, content: Content, *, name: str | None = None) -> Message:
    """Return the message that answers a call."""
    message: Message = {"role": "tool", "tool_call_id": call.id, "content": content}
    if name is not None:
        message["name"] = name
    return message


def cancelled_content(name: str) -> str:
    """Return the answer to a call that did not get to its end."""
    return json.dumps({"error": "Tool execution was cancelled by user", "cancelled": True, "tool": name})


CLOSING_MESSAGE: Message = {
    "role": "assistant",
    "content": "The operation was cancelled. Results of tools that had finished were kept.",
}

# Which results belong to which calls: leaving out the results of others, and standing in for those that never came.


def answers_of(message: Message) -> list[str] | None:
    """Return the ids of the calls that a message answers, None when it is not a tool result at all."""
    results = results_in(message)
    return None if results is None else list(dict.fromkeys(result.call_id for result in results))


def with_results_only_for(message: Message, call_ids: Collection[str]) -> Message | None:
    """Return a message without the results of other calls, None when nothing is left of it.

    The very message when all its results are for `call_ids`.
    """
    content = message.get("content")
    if not isinstance(content, list) or not has_result_blocks(content):
        answers = answers_of(message)
        return message if answers is None or any(answer in call_ids for answer in answers) else None
    kept = [block for block in content if block_type(block) != RESULT_BLOCK or _answers(block, call_ids)]
    if len(kept) == len(content):
        return message
    if not kept or (message.get("role") in RESULT_ROLES and not has_result_blocks(kept)):
        return None
    return {**message, "content": kept}


def has_content_beside_results(message: Message) -> bool:
    """True if a message holds anything but tool results."""
    content = message.get("content")
    if isinstance(content, list) and has_result_blocks(content):
        return any(block_type(block) != RESULT_BLOCK for block in content)
    return answers_of(message) is None


def missing_result(call: Call) -> Message:
    """Return the message that stands in for a result which never came."""
    content = {"error": "The result of this tool call is missing: it was interrupted", "missing": True}
    return {
        "role": "tool",
        "tool_call_id": call.id,
        **({"name": call.name} if call.name else {}),
        "content": json.dumps(content),
        "metadata": {"synthetic": True},
    }


def _answers(block: object, call_ids: Collection[str]) -> bool:
    result = read_result(block)
    return result is not None and result.call_id in call_ids
