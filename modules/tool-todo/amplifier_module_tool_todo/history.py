"""The list as the conversation remembers it."""

import logging
import re
from typing import Any

from amplifier_kit.messages.conversation import read_calls
from amplifier_kit.messages.tool_pairs import answers_of
from amplifier_kit.mounting import find_mounted

logger = logging.getLogger(__name__)

_CALL_BLOCKS = ("tool_call", "tool_use")
_SUCCESS = re.compile(r"""(["'])status\1: ?(["'])(?:created|updated)\2""")


async def last_todos(coordinator: Any, tool_name: str) -> list[Any]:
    """Return the lists of the successful calls in the session's messages, the last one first."""
    context = find_mounted(coordinator, "context")
    try:
        messages = [message for message in await context.get_messages() if isinstance(message, dict)]
    except Exception:
        logger.debug("the session has no messages to restore a list from", exc_info=True)
        return []
    succeeded: set[str] = set()
    found: list[Any] = []
    for message in reversed(messages):
        if (ids := answers_of(message)) is not None:
            succeeded.update(_successful(message, ids))
            continue
        for call in reversed(read_calls(_calls(message))):
            if call.name == tool_name and call.id in succeeded and call.arguments.get("action") in ("create", "update"):
                found.append(call.arguments.get("todos"))
    return found


def _calls(message: dict[str, Any]) -> list[Any]:
    if message.get("role") != "assistant":
        return []
    in_blocks = [block for block in _blocks(message.get("content")) if block.get("type") in _CALL_BLOCKS]
    return message.get("tool_calls") or in_blocks


def _successful(message: dict[str, Any], ids: list[str]) -> list[str]:
    """Return those of the calls a message answers that went well."""
    content = message.get("content")
    results = [block for block in _blocks(content) if block.get("type") == "tool_result"]
    if not results:
        return ids if _is_success(content) else []
    good = [block for block in results if _is_success(block.get("output", block.get("content")))]
    return [str(block.get("tool_call_id") or block.get("tool_use_id")) for block in good]


def _is_success(output: Any) -> bool:
    """Say whether this is what the tool answers when it has replaced the list, also cut off or with more behind it."""
    if isinstance(output, list):
        return any(_is_success(block.get("text")) for block in _blocks(output))
    return isinstance(output, str | dict) and _SUCCESS.search(str(output)) is not None


def _blocks(content: Any) -> list[dict[str, Any]]:
    return [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
