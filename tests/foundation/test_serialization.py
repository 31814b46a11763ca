"""Plain data for transcripts, and ids of child sessions."""

import datetime
import enum
import re
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from amplifier_foundation import SimpleCache, generate_sub_session_id, sanitize_for_json, sanitize_message


class Thing(BaseModel):
    a: int = 1
    b: Any = None


class Slotted:
    __slots__ = ()

    def model_dump(self) -> dict[str, Any]:
        return {"dumped": True, "nothing": None}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (1.5, 1.5),
        ("x", "x"),
        ({"a": 1, "b": None, "c": {1, 2}}, {"a": 1}),
        ([1, None, b"x", "y"], [1, "y"]),
        ((1, (2, None)), [1, [2]]),
        (Thing(), {"a": 1}),
        (Slotted(), {"dumped": True}),
        (SimpleNamespace(x=1, y=None), {"x": 1}),
        (Decimal(1), None),
        (datetime.date(2026, 1, 1), None),
        ({1, 2}, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_hold_is_left_out(value: Any, expected: Any) -> None:
    assert sanitize_for_json(value) == expected


def test_paths_vanish() -> None:
    assert sanitize_for_json({"p": Path("/x"), "k": 1})["k"] == 1


def test_depth_is_limited_and_costs_no_more_than_the_data() -> None:
    deep: dict[str, Any] = {}
    inner = deep
    for _ in range(45):
        inner["next"] = inner = {}
    inner["end"] = 1

    assert str(sanitize_for_json(deep)).endswith("{'end': 1" + "}" * 46)
    assert sanitize_for_json([[[1]]], max_depth=2) == [[]]


def test_a_thinking_block_is_kept_as_its_text() -> None:
    assert sanitize_message(
        {"role": "assistant", "thinking_block": {"text": "hm"}, "content_blocks": [1], "x": None}
    ) == {
        "role": "assistant",
        "thinking_text": "hm",
    }
    assert sanitize_message({"thinking_block": SimpleNamespace(text="hm")}) == {"thinking_text": "hm"}
    assert sanitize_message({"thinking_block": {"signature": "s"}, "role": "user"}) == {"role": "user"}


@pytest.mark.parametrize(
    ("message", "expected"), [("text", {}), (None, {}), (Thing(), {"a": 1})], ids=["text", "none", "model"]
)
def test_a_message_that_is_no_mapping_becomes_one(message: Any, expected: dict[str, Any]) -> None:
    assert sanitize_message(message) == expected


@pytest.mark.parametrize(
    ("agent", "suffix"),
    [
        ("foundation:Bug Hunter", "foundation-bug-hunter"),
        ("", "agent"),
        (None, "agent"),
        ("--É--", "agent"),
        ("a__b", "a-b"),
    ],
)
def test_a_child_session_is_named_after_its_agent(agent: str | None, suffix: str) -> None:
    assert re.fullmatch(rf"0{{16}}-[0-9a-f]{{16}}_{suffix}", generate_sub_session_id(agent))


@pytest.mark.parametrize(
    ("parent", "trace", "expected"),
    [
        ("aaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb_x", None, "b" * 16),
        ("aaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb_x", "0123456789abcdef0123456789abcdef", "b" * 16),
        ("some-other-id", None, "0" * 16),
        ("some-other-id", "0123456789abcdef0123456789abcdef", "89abcdef01234567"),
        (None, "0123456789ABCDEF0123456789ABCDEF", "0" * 16),
    ],
)
def test_a_child_session_is_linked_to_its_parent(parent: str | None, trace: str | None, expected: str) -> None:
    assert generate_sub_session_id("a", parent, trace).startswith(f"{expected}-")


def test_two_children_have_two_ids() -> None:
    assert generate_sub_session_id("a") != generate_sub_session_id("a")


def test_a_simple_cache_keeps_bundles_until_it_is_cleared() -> None:
    cache = SimpleCache()
    bundle: Any = object()

    cache.set("a", bundle)

    assert (cache.get("a"), cache.get("b"), "a" in cache) == (bundle, None, True)
    cache.clear()
    assert "a" not in cache


class Colour(enum.Enum):
    RED = 1
    GREEN = 2
    BLUE = 3


class Branch:
    """A tree whose nodes know their root and all others."""

    def __init__(self) -> None:
        self.others: list[Branch] = []


def test_what_refers_to_itself_is_written_once_and_without_delay() -> None:
    branches = [Branch() for _ in range(6)]
    for branch in branches:
        branch.others = branches
    circle: dict[str, Any] = {"a": 1}
    circle["again"] = circle

    assert sanitize_for_json(circle) == {"a": 1}
    assert sanitize_for_json({"colour": Colour.RED})["colour"]["_value_"] == 1
    assert len(sanitize_for_json(branches)) == 6


def test_a_value_that_occurs_twice_is_written_twice() -> None:
    shared = {"x": [1]}

    assert sanitize_for_json([shared, shared, {"again": shared}]) == [{"x": [1]}, {"x": [1]}, {"again": {"x": [1]}}]
