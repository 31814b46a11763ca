"""The shapes of a conversation: what a response says, which tools it calls, and the messages that record it."""

import json
import logging
import uuid
from dataclasses import dataclass, field
from typing import Any

from amplifier_core import ChatResponse, ToolCall, ToolResult, Usage
from amplifier_core.utils import json_safe

logger = logging.getLogger(__name__)

Content = str | list[dict[str, Any]]

_CALL_BLOCKS = ("tool_call", "tool_use")


@dataclass(slots=True)
class Call:
    """One tool call in normal form; `problem` says why its arguments cannot be used."""

    id: str
    name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the call as it stands in a stored assistant message."""
        return {"id": self.id, "tool": self.name, "arguments": self.arguments}


def read_calls(calls: Any) -> list[Call]:
    """Return tool calls in normal form, whether they are objects or dicts of any known spelling."""
    return [_read_call(call) for call in calls] if isinstance(calls, list | tuple) else []


def _read_call(call: Any) -> Call:
    if isinstance(call, ToolCall):
        return Call(call.id or _new_call_id(), call.name, call.arguments)
    function = _field(call, "function")
    call_id = _field(call, "id") or _field(call, "tool_call_id") or _new_call_id()
    names = (_field(call, "name"), _field(call, "tool"), _field(function, "name"))
    name = next((name for name in names if name and isinstance(name, str)), "")
    spellings = ((call, "arguments"), (call, "input"), (function, "arguments"))
    given = next((value for source, key in spellings if (value := _field(source, key)) is not None), None)
    arguments, problem = _read_arguments(given)
    return Call(str(call_id), name, arguments, problem)


def _read_arguments(given: Any) -> tuple[dict[str, Any], str]:
    """Return arguments as a dict, or an empty one and what is wrong with them."""
    if isinstance(given, str):
        try:
            given = json.loads(given) if given.strip() else None
        except (ValueError, RecursionError) as exc:
            return {}, str(exc)
    if given is None or given == []:
        return {}, ""
    if not isinstance(given, dict):
        return {}, f"the arguments must be a JSON object, got {type(given).__name__}"
    return given, ""


def _new_call_id() -> str:
    return f"call_{uuid.uuid4().hex}"


def _field(source: Any, name: str) -> Any:
    return source.get(name) if isinstance(source, dict) else getattr(source, name, None)


def block_type(block: Any) -> str:
    """Return the type of a content block, object or dict, with a plain string or an enum."""
    kind = _field(block, "type")
    return kind if type(kind) is str else str(getattr(kind, "value", kind))


def block_dict(block: Any) -> dict[str, Any]:
    """Return a content block as a dict with everything it carries."""
    if isinstance(block, dict):
        return block
    for method in ("model_dump", "to_dict"):
        if callable(dump := getattr(block, method, None)) and isinstance(dumped := dump(), dict):
            return dumped
    safe = json_safe(block)
    return safe if isinstance(safe, dict) else {"type": "text", "text": str(safe)}


class DictResponse(dict[str, Any]):
    """A response that a provider gave as a dict; its items can be read like the fields of any other."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


def as_response(returned: Any) -> Any:
    """Return what a provider returned as something that has a response's fields."""
    return DictResponse(returned) if isinstance(returned, dict) else returned


def display_blocks(response: Any) -> list[Any]:
    """Return the blocks that a response carries for display beside its content."""
    blocks = extra_field(response, "content_blocks")
    return list(blocks) if isinstance(blocks, list | tuple) else []


def content_blocks(response: Any) -> list[Any]:
    """Return the blocks of a response's content; text alone has none."""
    content = getattr(response, "content", None)
    return list(content) if isinstance(content, list | tuple) else []


def extra_field(response: Any, name: str) -> Any:
    """Return what a response may carry beyond the kernel's own fields, None when it does not."""
    if type(response) is ChatResponse:  # which takes microseconds to say that it lacks a field
        return (response.model_extra or {}).get(name)
    return getattr(response, name, None)


def usage_of(response: Any) -> dict[str, Any] | None:
    """Return what a response says it used, as JSON data."""
    usage = getattr(response, "usage", None)
    if type(usage) is Usage and not usage.model_extra:
        return usage.model_dump(mode="json", warnings=False)
    safe = json_safe(usage)
    return safe if isinstance(safe, dict) else None


def text_of(content: Any) -> str:
    """Return the text of a response: its text blocks only, separated by a blank line."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        return ""
    texts = [_field(block, "text") for block in content if block_type(block) == "text"]
    return "\n\n".join([text for text in texts if isinstance(text, str) and text])


def has_call_blocks(content: Any) -> bool:
    """Say whether a response's content itself holds tool calls."""
    return isinstance(content, list | tuple) and any(block_type(block) in _CALL_BLOCKS for block in content)


def user_message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant_message(response: Any, text: str, calls: list[Call]) -> dict[str, Any]:
    """Return the message that records a response with its blocks, in the order the model gave them.

    A block that calls a tool stays only if it is among the calls that will be answered.
    """
    answered = {call.id for call in calls}
    content = getattr(response, "content", None)
    blocks = [
        block_dict(block)
        for block in (content if isinstance(content, list) else ())
        if block_type(block) not in _CALL_BLOCKS or _field(block, "id") in answered
    ]
    message: dict[str, Any] = {"role": "assistant", "content": blocks or text}
    if calls:
        message["tool_calls"] = [call.to_dict() for call in calls]
    metadata = getattr(response, "metadata", None)
    if metadata and isinstance(metadata, dict):
        message["metadata"] = metadata
    return message


def tool_message(call: Call, content: Content, *, name: str | None = None) -> dict[str, Any]:
    """Return the message that answers a call."""
    message: dict[str, Any] = {"role": "tool", "tool_call_id": call.id, "content": content}
    if name is not None:
        message["name"] = name
    return message


def cancelled_content(name: str) -> str:
    """Return the answer to a call that did not get to its end."""
    return json.dumps({"error": "Tool execution was cancelled by user", "cancelled": True, "tool": name})


CLOSING_MESSAGE: dict[str, Any] = {
    "role": "assistant",
    "content": "The operation was cancelled. Results of tools that had finished were kept.",
}


def as_tool_result(returned: Any) -> ToolResult:
    """Return what a tool returned as a result; anything that is none is the output of a success."""
    return returned if isinstance(returned, ToolResult) else ToolResult(success=True, output=returned)


def result_content(result: ToolResult) -> Content:
    """Return what the model is shown: the result's blocks when it has some, so that images reach it, else its text."""
    if result.content:
        return [block.model_dump(exclude_none=True) for block in result.content]
    return result_text(result)


def result_text(result: ToolResult) -> str:
    try:
        return result.get_serialized_output()
    except (TypeError, ValueError):
        logger.debug("a tool's output is not JSON", exc_info=True)
        return json.dumps(json_safe(result.output), ensure_ascii=False)


def replaced_content(data: dict[str, Any], sent: Any) -> str | None:
    """Return the content that hooks put in place of a result, None when they left it alone.

    The very object that was sent is unchanged, without a look inside.
    """
    for key in ("result", "tool_result"):
        value = data.get(key)
        if value is not None and value is not sent and value != sent:
            return _content_from(value)
    return None


def _content_from(value: Any) -> str:
    if isinstance(value, dict) and "success" in value and "output" in value:
        try:
            return result_text(ToolResult(success=value["success"], output=value["output"], error=value.get("error")))
        except ValueError:
            logger.debug("a replaced tool result is not well-formed", exc_info=True)
    if isinstance(value, dict | list):
        return json.dumps(json_safe(value), ensure_ascii=False)
    return str(value)
