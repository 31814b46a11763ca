"""Turns of a conversation, and tool calls that never got their result. Nothing here reads or writes files.

A turn is a message of role `user` and everything up to the next one; turns are counted from 1.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from amplifier_core.utils.tool_messages import CALL_BLOCKS, Call, block_type, calls_in, read_call, with_stand_ins
from amplifier_sessions.session_directory import is_real_user_message as is_real_user_message
from amplifier_sessions.session_directory import texts_in

Message = dict[str, Any]

_INTERRUPTED = "The previous tool calls were interrupted; their results are not available."


def get_turn_boundaries(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """Return the positions at which turns begin."""
    return [index for index, message in enumerate(messages) if message.get("role") == "user"]


def count_turns(messages: Sequence[Mapping[str, Any]]) -> int:
    return len(get_turn_boundaries(messages))


def find_orphaned_tool_calls(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the ids of the tool calls that have no result."""
    answered = {message.get("tool_call_id") for message in messages if message.get("role") == "tool"}
    asked = dict.fromkeys(call.id for message in messages for call in calls_in(message))
    return [call_id for call_id in asked if call_id not in answered]


def add_synthetic_tool_results(
    messages: list[Message], orphaned_ids: Collection[str], *, synthetic_content: str | None = None
) -> list[Message]:
    """Return the conversation with a result put in for each of the calls named, directly after the calling message.

    When a user's message follows, an assistant's sentence is put between, so that roles alternate.
    """
    if not orphaned_ids:
        return messages
    content = synthetic_content if synthetic_content is not None else _FORKED
    stand_ins: dict[int, list[Message]] = {}
    for index, message in enumerate(messages):
        orphans = [call for call in calls_in(message) if call.id in orphaned_ids]
        stand_ins[index] = [_tool_result(call, content) for call in orphans]
        following = messages[index + 1] if index + 1 < len(messages) else {}
        if orphans and following.get("role") == "user":
            stand_ins[index].append({"role": "assistant", "content": _INTERRUPTED})
    return with_stand_ins(messages, stand_ins)


def slice_to_turn(messages: list[Message], turn: int, *, handle_orphaned_tools: str = "complete") -> list[Message]:
    """Return the conversation up to the end of a turn.

    Args:
        handle_orphaned_tools: what to do about calls whose result is cut off: `complete` puts in a result, `remove`
            takes the calls out, `error` raises.

    Raises:
        ValueError: there is no such turn, or there are orphaned calls and they may not be, or the choice is unknown.
    """
    sliced = messages[: _end_of_turn(messages, turn)]
    orphans = find_orphaned_tool_calls(sliced)
    if not orphans:
        return sliced
    if handle_orphaned_tools == "complete":
        return add_synthetic_tool_results(sliced, orphans)
    if handle_orphaned_tools == "remove":
        return [_without_calls(message, set(orphans)) for message in sliced]
    if handle_orphaned_tools == "error":
        raise ValueError(f"Orphaned tool calls at turn {turn}: {', '.join(orphans)}")
    raise ValueError(f"Unknown handle_orphaned_tools {handle_orphaned_tools!r}: use complete, remove or error")


def get_turn_summary(messages: list[Message], turn: int, *, max_length: int = 100) -> dict[str, Any]:
    """Return what a turn was about: its first words on both sides, and how many messages and tool calls it has.

    Raises:
        ValueError: there is no such turn.
    """
    end = _end_of_turn(messages, turn)
    begin = get_turn_boundaries(messages)[turn - 1]
    answers = (
        text
        for message in messages[begin:end]
        if message.get("role") == "assistant"
        for text in texts_in(message.get("content"))
    )
    return {
        "turn": turn,
        "user_content": shorten(first_text(messages[begin]), max_length),
        "assistant_content": shorten(next((text for text in answers if text), ""), max_length),
        "tool_count": sum(len(calls_in(message)) for message in messages[begin:end]),
        "message_count": end - begin,
    }


def first_text(message: Mapping[str, Any]) -> str:
    """Return a message's first piece of text, `""` when it has none."""
    return next((text for text in texts_in(message.get("content")) if text), "")


def shorten(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[:max_length]}..."


def _end_of_turn(messages: Sequence[Mapping[str, Any]], turn: int) -> int:
    if turn < 1:
        raise ValueError(f"Turn must be >= 1, got {turn}")
    boundaries = get_turn_boundaries(messages)
    if not boundaries:
        raise ValueError("No user messages: the conversation has no turns")
    if turn > len(boundaries):
        raise ValueError(f"Turn {turn} exceeds max turns ({len(boundaries)})")
    return boundaries[turn] if turn < len(boundaries) else len(messages)


def _tool_result(call: Call, content: str) -> Message:
    result: Message = {"role": "tool", "tool_call_id": call.id, "content": content}
    return {**result, "name": call.name} if call.name else result


def _without_calls(message: Message, ids: set[str]) -> Message:
    if not any(call.id in ids for call in calls_in(message)):
        return message
    kept = dict(message)
    if isinstance(kept.get("content"), list):
        kept["content"] = [
            block for block in kept["content"] if block_type(block) not in CALL_BLOCKS or read_call(block).id not in ids
        ]
    if "tool_calls" in kept:
        kept["tool_calls"] = [call for call in kept["tool_calls"] or () if read_call(call).id not in ids]
        if not kept["tool_calls"]:
            del kept["tool_calls"]
    return kept


_FORKED = json.dumps(
    {
        "error": "tool_result_unavailable",
        "forked": True,
        "message": "The session was forked before this tool call had a result.",
    }
)
