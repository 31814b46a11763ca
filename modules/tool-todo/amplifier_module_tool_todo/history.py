"""The list as the conversation remembers it."""

import logging
import re
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_core.utils.tool_messages import calls_in, results_in
from amplifier_kit.mounting import find_mounted

logger = logging.getLogger(__name__)

_SUCCESS = re.compile(r"""(["'])status\1: ?(["'])(?:created|updated)\2""")


async def last_todos(coordinator: Any, tool_name: str) -> list[Any]:
    """Return the lists of the successful calls in the session's messages, the last one first."""
    context = find_mounted(coordinator, "context")
    messages: list[dict[str, Any]] = []
    with Boundary(logger, "the session has no messages to restore a list from: %s", level=logging.DEBUG):
        messages = [message for message in await context.get_messages() if isinstance(message, dict)]
    succeeded: set[str] = set()
    found: list[Any] = []
    for message in reversed(messages):
        if (results := results_in(message)) is not None:
            succeeded.update(result.call_id for result in results if _is_success(result.output))
            continue
        for call in reversed(calls_in(message)):
            if call.name == tool_name and call.id in succeeded and call.arguments.get("action") in ("create", "update"):
                found.append(call.arguments.get("todos"))
    return found


def _is_success(output: Any) -> bool:
    """Say whether this is what the tool answers when it has replaced the list, also cut off or with more behind it."""
    if isinstance(output, list):
        return any(_is_success(block.get("text")) for block in output if isinstance(block, dict))
    return isinstance(output, str | dict) and _SUCCESS.search(str(output)) is not None
