"""The text of a tool's result: of what a tool returned, of what is stored, and of what hooks put in its place."""

import json
import logging

from amplifier_core import ToolResult
from amplifier_core.utils import json_safe
from amplifier_core.utils.serialize import sanitize_text
from amplifier_core.utils.tool_messages import block_type, field_of
from amplifier_kit.types import Block, EventData

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
