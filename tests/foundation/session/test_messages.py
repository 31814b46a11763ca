"""Turns of a conversation, and calls without result."""

import importlib
import json
import sys
from typing import Any

import pytest

from amplifier_foundation.session import (
    add_synthetic_tool_results,
    count_turns,
    find_orphaned_tool_calls,
    get_turn_boundaries,
    get_turn_summary,
    is_real_user_message,
    slice_to_turn,
)


def user(text: Any) -> dict[str, Any]:
    return {"role": "user", "content": text}


def calling(*ids: str, text: str = "") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": text,
        "tool_calls": [{"id": i, "function": {"name": f"t-{i}"}} for i in ids],
    }


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


ANSWER = {"role": "assistant", "content": [{"type": "text", "text": "done"}]}
TWO_TURNS = [user("one"), calling("a"), result("a"), ANSWER, user("two"), ANSWER]


def test_a_turn_begins_with_each_message_of_the_user() -> None:
    assert get_turn_boundaries(TWO_TURNS) == [0, 4]
    assert count_turns(TWO_TURNS) == 2
    assert count_turns([]) == 0


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (user("hi"), True),
        (user([{"type": "text", "text": "hi"}]), True),
        (user("  <system-reminder>x"), False),
        (user([{"type": "image"}, {"type": "text", "text": "<system-reminder>x"}]), False),
        ({**user("hi"), "tool_call_id": "a"}, False),
        ({**user("hi"), "tool_call_id": None}, False),
        (ANSWER, False),
        ({}, False),
    ],
)
def test_what_a_person_wrote_is_told_from_what_the_machine_wrote(entry: dict[str, Any], expected: bool) -> None:
    assert is_real_user_message(entry) is expected


def test_calls_without_result_are_found_in_both_forms() -> None:
    blocks = {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "t"}]}

    assert find_orphaned_tool_calls([calling("a", "b"), result("a"), blocks]) == ["b", "c"]


def test_missing_results_are_put_after_the_call_and_roles_still_alternate() -> None:
    messages = [user("x"), calling("a", "b"), result("a"), user("y")]
    adjacent = [user("x"), calling("a"), user("y")]

    completed = add_synthetic_tool_results(messages, ["b"])
    alternating = add_synthetic_tool_results(adjacent, ["a"], synthetic_content="gone")

    assert [message["role"] for message in completed] == ["user", "assistant", "tool", "tool", "user"]
    assert completed[2]["tool_call_id"] == "b"
    assert completed[2]["name"] == "t-b"
    assert json.loads(completed[2]["content"])["forked"] is True
    assert [message["role"] for message in alternating] == ["user", "assistant", "tool", "assistant", "user"]
    assert alternating[2]["content"] == "gone"
    assert len(messages) == 4


def test_without_orphans_the_list_itself_is_returned() -> None:
    assert add_synthetic_tool_results(TWO_TURNS, []) is TWO_TURNS


def test_a_conversation_is_cut_after_a_turn() -> None:
    assert slice_to_turn(TWO_TURNS, 1) == TWO_TURNS[:4]
    assert slice_to_turn(TWO_TURNS, 2) == TWO_TURNS


@pytest.mark.parametrize(
    ("messages", "turn", "problem"),
    [(TWO_TURNS, 0, "Turn must be >= 1"), ([ANSWER], 1, "No user messages"), (TWO_TURNS, 3, "exceeds max turns")],
)
def test_a_turn_that_is_not_there_is_an_error(messages: list[dict[str, Any]], turn: int, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        slice_to_turn(messages, turn)


def test_calls_cut_from_their_results_are_completed_removed_or_refused() -> None:
    blocks = [{"type": "text", "text": "t"}, {"type": "tool_use", "id": "b", "name": "x"}]
    messages = [user("x"), {**calling("a"), "content": blocks}]

    completed = slice_to_turn(messages, 1)
    removed = slice_to_turn(messages, 1, handle_orphaned_tools="remove")

    assert [message.get("tool_call_id") for message in completed] == [None, None, "a", "b"]
    assert removed[1] == {"role": "assistant", "content": [{"type": "text", "text": "t"}]}
    assert messages[1]["content"] == blocks
    with pytest.raises(ValueError, match="Orphaned tool calls"):
        slice_to_turn(messages, 1, handle_orphaned_tools="error")
    with pytest.raises(ValueError, match=r"^Unknown handle_orphaned_tools 'maybe'"):
        slice_to_turn(messages, 1, handle_orphaned_tools="maybe")
    assert slice_to_turn(TWO_TURNS, 1, handle_orphaned_tools="maybe") == TWO_TURNS[:4]


def test_a_turn_is_summarised() -> None:
    assert get_turn_summary(TWO_TURNS, 1, max_length=2) == {
        "turn": 1,
        "user_content": "on...",
        "assistant_content": "do...",
        "tool_count": 1,
        "message_count": 4,
    }
    with pytest.raises(ValueError, match="exceeds"):
        get_turn_summary(TWO_TURNS, 9)


def test_the_former_home_of_these_functions_says_that_it_is_deprecated() -> None:
    sys.modules.pop("amplifier_foundation.session.slice", None)

    with pytest.warns(DeprecationWarning, match="deprecated"):
        module = importlib.import_module("amplifier_foundation.session.slice")

    assert module.slice_to_turn is slice_to_turn
