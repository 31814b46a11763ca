"""Which messages call tools and which carry results, in every shape in which messages are stored.

Calls stand in `tool_calls` or in content blocks (`tool_call`, `tool_use`), results are messages with the role `tool`
or content blocks (`tool_result`).
"""

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from .stored import Message

_CALL_BLOCKS = frozenset({"tool_call", "tool_use"})
_RESULT_BLOCK = "tool_result"
_RESULT_ROLES = frozenset({"tool", "user"})


@dataclass(frozen=True, slots=True)
class CallKey:
    """What pairs a tool call with its result, and the tool's name."""

    id: str
    name: str


def calls_of(message: Message) -> list[CallKey]:
    """Return the calls an assistant message makes and does not answer itself, in order; without an id it is none."""
    if message.get("role") != "assistant":
        return []
    calls: list[CallKey] = []
    if tool_calls := message.get("tool_calls"):
        calls += [call for item in _items(tool_calls) if (call := _call(item))]
    content = message.get("content")
    if isinstance(content, list):
        answered = {_result_id(block) for block in content if _type(block) == _RESULT_BLOCK}
        listed = {call.id for call in calls} | answered
        blocks = [call for block in content if _type(block) in _CALL_BLOCKS and (call := _call(block))]
        calls += [call for call in blocks if call.id not in listed]
        calls = [call for call in calls if call.id not in answered]
    return calls


def answers_of(message: Message) -> list[str] | None:
    """Return the ids of the calls that a message answers, None when it is no tool result at all."""
    role = message.get("role")
    if role not in _RESULT_ROLES:
        return None
    ids: list[str] = []
    is_result = role == "tool"
    if is_result and isinstance(call_id := message.get("tool_call_id"), str):
        ids.append(call_id)
    content = message.get("content")
    if isinstance(content, list):
        for block in content:
            if _type(block) == _RESULT_BLOCK:
                is_result = True
                if (call_id := _result_id(block)) and call_id not in ids:
                    ids.append(call_id)
    return ids if is_result else None


def with_results_only_for(message: Message, call_ids: Collection[str]) -> Message | None:
    """Return a message without the results of other calls, None when nothing is left of it.

    The very message when all its results are for `call_ids`.
    """
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    is_other_result = message.get("role") == "tool" and message.get("tool_call_id") not in call_ids
    if is_other_result and not any(_is_result_for(block, call_ids) for block in blocks):
        return None
    if not isinstance(content, list):
        return message
    kept = [block for block in content if _type(block) != _RESULT_BLOCK or _is_result_for(block, call_ids)]
    if len(kept) == len(content):
        return message
    return {**message, "content": kept} if kept else None


def has_content_beside_results(message: Message) -> bool:
    """Say whether a message holds anything but tool results."""
    content = message.get("content")
    return not isinstance(content, list) or any(_type(block) != _RESULT_BLOCK for block in content)


def missing_result(call: CallKey) -> Message:
    """Return the message that stands in for a result which never came."""
    content = {"error": "The result of this tool call is missing: it was interrupted", "missing": True}
    return {
        "role": "tool",
        "tool_call_id": call.id,
        **({"name": call.name} if call.name else {}),
        "content": json.dumps(content),
        "metadata": {"synthetic": True},
    }


def _call(item: Any) -> CallKey | None:
    call_id = _field(item, "id") or _field(item, "tool_call_id")
    if not isinstance(call_id, str):
        return None
    name = _field(item, "name") or _field(item, "tool") or _field(_field(item, "function"), "name")
    return CallKey(call_id, name if isinstance(name, str) else "")


def _result_id(block: Any) -> str | None:
    call_id = _field(block, "tool_call_id") or _field(block, "tool_use_id")
    return call_id if isinstance(call_id, str) else None


def _is_result_for(block: Any, call_ids: Collection[str]) -> bool:
    return _type(block) == _RESULT_BLOCK and _result_id(block) in call_ids


def _type(block: Any) -> str:
    kind = _field(block, "type")
    return kind if isinstance(kind, str) else ""


def _field(item: Any, name: str) -> Any:
    return item.get(name) if isinstance(item, dict) else getattr(item, name, None)


def _items(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []
