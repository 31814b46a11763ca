"""Which results belong to which calls: leaving out the results of others, and standing in for those that never came."""

import json
from collections.abc import Collection

from amplifier_core.utils.tool_messages import (
    RESULT_BLOCK,
    RESULT_ROLES,
    Call,
    block_type,
    has_result_blocks,
    read_result,
    results_in,
)
from amplifier_kit.types import Message


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
    """Say whether a message holds anything but tool results."""
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
