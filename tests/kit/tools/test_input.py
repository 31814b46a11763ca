"""A tool's input against its schema, and the answers when it does not fit."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_kit.tools.input import ToolFailure, failure, os_failure, read_input

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number", "default": 0.5},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "flag": {"type": "boolean", "default": False},
        "either": {"type": ["string", "integer"]},
        "anything": {},
    },
    "required": ["name"],
}


def refusal(given: Any, **options: Any) -> str:
    with pytest.raises(ToolFailure) as caught:
        read_input("tool", SCHEMA, given, **options)
    assert caught.value.code == "invalid_input"
    return caught.value.message


def test_defaults_are_filled_in_and_unknown_keys_left_out() -> None:
    assert read_input("tool", SCHEMA, {"name": "x", "_tool_call_id": "1"}) == {"name": "x", "ratio": 0.5, "flag": False}


def test_an_explicit_null_counts_as_absent() -> None:
    assert read_input("tool", SCHEMA, {"name": "x", "mode": None, "flag": None})["flag"] is False
    assert refusal({"name": None}) == "tool: 'name' is required"


@pytest.mark.parametrize("given", [None, [], "text", 7])
def test_what_is_no_object_is_refused(given: Any) -> None:
    assert "must be an object" in refusal(given)


@pytest.mark.parametrize(
    ("key", "value", "problem"),
    [
        ("name", 3, "must be of type string, got int"),
        ("count", True, "must be of type integer, got bool"),
        ("count", 1.0, "must be of type integer, got float"),
        ("count", 0, "must be at least 1, got 0"),
        ("count", 10, "must be at most 9, got 10"),
        ("ratio", "1", "must be of type number, got str"),
        ("ratio", False, "must be of type number, got bool"),
        ("mode", "c", "must be one of a, b, got 'c'"),
        ("tags", "a", "must be of type array, got str"),
        ("tags", ["a", 1], "[1] must be of type string, got int"),
        ("flag", 1, "must be of type boolean, got int"),
        ("either", [], "must be of type string or integer, got list"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_name(key: str, value: Any, problem: str) -> None:
    assert refusal({"name": "x", key: value}) == f"tool: {key!r} {problem}"


def test_values_that_fit_are_handed_on_as_they_are() -> None:
    given = {"name": "x", "count": 9, "ratio": 1, "mode": "b", "tags": [], "flag": True, "either": 1, "anything": [0]}

    assert read_input("tool", SCHEMA, given) == given


@pytest.mark.parametrize("value", [None, ""])
def test_a_text_that_must_not_be_empty_is_asked_for_in_its_own_words(value: Any) -> None:
    assert refusal({"name": value}, texts={"name": "Name is required"}) == "Name is required"
    assert read_input("tool", SCHEMA, {"name": ""})["name"] == ""


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*SCHEMA["properties"], "x"]), inner),
    )
)
def test_any_input_is_read_or_refused(value: Any) -> None:
    read: dict[str, Any] = {}
    with suppress(ToolFailure):
        read = read_input("tool", SCHEMA, value)

    assert set(read) <= set(SCHEMA["properties"])


def test_a_failure_says_its_message_twice_and_carries_its_details() -> None:
    result = failure("no such thing", "not_found", hint="look again")

    assert (result.success, result.output) == (False, "no such thing")
    assert result.error == {"message": "no such thing", "code": "not_found", "hint": "look again"}


def test_an_error_of_the_system_keeps_its_kind_and_number() -> None:
    result = os_failure("cannot open", PermissionError(13, "Permission denied")).result()

    assert result.error == {"message": "cannot open", "code": "io_error", "type": "PermissionError", "errno": 13}
