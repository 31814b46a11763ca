"""Event data as plain JSON data."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from amplifier_core.utils import json_safe
from amplifier_kit.types import STAMP
from amplifierd.sessions.secret_values import plain_data


class Model(BaseModel):
    name: str = "a name"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.decimals()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.text(), VALUES))
def test_data_becomes_what_json_safe_makes_of_it(data: dict[str, Any]) -> None:
    assert plain_data(data).value == json_safe(data)


@pytest.mark.parametrize(
    "odd",
    [datetime.now(UTC), Decimal("1.5"), Path("/tmp"), Model(), {1, 2}, b"x", 10**5000, float("nan"), ValueError("x")],
    ids=lambda odd: type(odd).__name__,
)
def test_what_is_not_plain_is_said_as_everywhere(odd: object) -> None:
    data = {"odd": [odd], "plain": "text"}
    assert plain_data(data).value == json_safe(data)


def test_a_circle_ends() -> None:
    circle: dict[str, Any] = {"text": "x"}
    circle["again"] = [circle, circle]
    assert plain_data(circle).value == json_safe(circle)


def test_all_texts_are_found_and_the_keys_that_have_texts() -> None:
    found = plain_data({"a": "one", "b": [{"c": "two"}, ["three"]], "d": 4, "e": Model(), STAMP: {"rules": ["four"]}})
    assert sorted(found.texts) == ["a name", "four", "one", "three", "two"]
    assert set(found.keys) == {"a", "c", "name"}


def test_the_copy_shares_nothing_that_can_change() -> None:
    inner = {"list": [1]}
    copy = plain_data({"inner": inner}).value
    inner["list"].append(2)
    assert copy == {"inner": {"list": [1]}}
