"""Broken conversations are recognised and mended."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_foundation.session import build_tool_index, diagnose_transcript, repair_transcript, rewind_transcript


def user(text: str = "hi") -> dict[str, Any]:
    return {"role": "user", "content": text}


def calling(*ids: str) -> dict[str, Any]:
    return {"role": "assistant", "content": "", "tool_calls": [{"id": i, "tool": f"tool-{i}"} for i in ids]}


def result(call_id: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": "ok"}


ANSWER = {"role": "assistant", "content": "done"}


def numbered(*entries: dict[str, Any]) -> list[dict[str, Any]]:
    return [{**entry, "line_num": number} for number, entry in enumerate(entries, start=1)]


HEALTHY = numbered(user(), calling("a", "b"), result("a"), result("b"), ANSWER)
MISSING = numbered(user("first"), ANSWER, user("second"), calling("a"), user("third"), ANSWER)
MISPLACED = numbered(user(), calling("a"), user("again"), result("a"), ANSWER)
UNANSWERED = numbered(user(), calling("a"), result("a"), user("again"), ANSWER)
AT_THE_END = numbered(user(), calling("a"), result("a"))


def test_calls_and_results_are_indexed_by_id() -> None:
    index = build_tool_index([*HEALTHY, {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f"}}]}])

    assert index["tool_uses"]["a"] == {"line_num": 2, "tool_name": "tool-a", "entry_index": 1}
    assert index["tool_uses"]["c"] == {"line_num": None, "tool_name": "f", "entry_index": 5}
    assert index["tool_results"] == {
        "a": {"line_num": 3, "entry_index": 2},
        "b": {"line_num": 4, "entry_index": 3},
    }


@pytest.mark.parametrize(
    ("entries", "modes"),
    [
        ([], []),
        (HEALTHY, []),
        (MISSING, ["missing_tool_results"]),
        (MISPLACED, ["ordering_violation"]),
        (UNANSWERED, ["incomplete_assistant_turn"]),
        (AT_THE_END, ["incomplete_assistant_turn"]),
        (numbered(user(), calling("a", "b"), result("a")), ["missing_tool_results", "incomplete_assistant_turn"]),
        (numbered(user(), calling("a"), user("<system-reminder>x"), result("a"), ANSWER), []),
        (numbered(user(), calling("a"), result("a"), calling("b"), result("b"), ANSWER), []),
    ],
    ids=["empty", "healthy", "missing", "misplaced", "unanswered", "at the end", "both", "reminder", "two rounds"],
)
def test_what_is_wrong_is_named(entries: list[dict[str, Any]], modes: list[str]) -> None:
    diagnosis = diagnose_transcript(entries)

    assert diagnosis["failure_modes"] == modes
    assert diagnosis["status"] == ("broken" if modes else "healthy")
    assert diagnosis["recommended_action"] == ("repair" if modes else "none")


def test_a_diagnosis_says_where() -> None:
    assert diagnose_transcript(MISSING)["orphaned_tool_ids"] == ["a"]
    assert diagnose_transcript(MISPLACED)["misplaced_tool_ids"] == ["a"]
    assert diagnose_transcript(UNANSWERED)["incomplete_turns"] == [
        {"after_line": 3, "after_index": 2, "missing": "assistant_response"}
    ]


@pytest.mark.parametrize(
    ("entries", "roles"),
    [
        (HEALTHY, ["user", "assistant", "tool", "tool", "assistant"]),
        (MISSING, ["user", "assistant", "user", "assistant", "tool", "assistant", "user", "assistant"]),
        (MISPLACED, ["user", "assistant", "tool", "assistant", "user", "assistant"]),
        (UNANSWERED, ["user", "assistant", "tool", "assistant", "user", "assistant"]),
        (AT_THE_END, ["user", "assistant", "tool", "assistant"]),
    ],
    ids=["healthy", "missing", "misplaced", "unanswered", "at the end"],
)
def test_a_repair_answers_every_call_and_closes_every_turn(entries: list[dict[str, Any]], roles: list[str]) -> None:
    repaired = repair_transcript(entries, diagnose_transcript(entries))

    assert [entry["role"] for entry in repaired] == roles
    assert not any("line_num" in entry for entry in repaired)
    assert diagnose_transcript(repaired)["status"] == "healthy"


def test_a_result_that_was_put_in_says_so() -> None:
    repaired = repair_transcript(MISSING, diagnose_transcript(MISSING))

    assert repaired[4]["name"] == "tool-a"
    assert json.loads(repaired[4]["content"])["error"] == "unknown_error"
    assert repaired[5]["content"][0]["type"] == "text"


@pytest.mark.parametrize(
    ("entries", "kept"),
    [(HEALTHY, 5), (MISSING, 2), (MISPLACED, 0), (numbered(calling("a")), 0)],
    ids=["healthy", "missing", "first turn", "no person"],
)
def test_a_rewind_ends_before_the_message_that_led_to_the_problem(entries: list[dict[str, Any]], kept: int) -> None:
    rewound = rewind_transcript(entries, diagnose_transcript(entries))

    assert len(rewound) == kept
    assert not any("line_num" in entry for entry in rewound)


pieces = st.sampled_from(
    [user(), user("<system-reminder>x"), calling("a"), calling("b", "c"), result("a"), result("b"), result("c"), ANSWER]
)


@given(st.lists(pieces, max_size=8))
def test_any_conversation_can_be_diagnosed_repaired_and_rewound(entries: list[dict[str, Any]]) -> None:
    diagnosis = diagnose_transcript(entries)

    assert repair_transcript(entries, diagnosis) is not entries
    assert len(rewind_transcript(entries, diagnosis)) <= len(entries)
