"""Anything at all as JSON."""

import asyncio
import copy
import functools
import json
import math
import types
import uuid
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum, IntEnum
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from amplifier_core import utils
from amplifier_core.message_models import Message, TextBlock, Usage
from amplifier_core.models import ToolResult
from amplifier_core.utils.serialize import json_safe, sanitize_text


class Colour(Enum):
    RED = "red"


class Mood(str, Enum):  # noqa: UP042 - the older spelling is what vendors' packages use
    GOOD = "good"


class Level(IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    a: int
    b: int


@dataclass
class Point:
    x: int
    tags: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class Slotted:
    value: Any


class Anything:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


class Silent:
    """Has no attributes, and cannot be turned into text."""

    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError("I do not speak")


class Slots:
    __slots__ = ()

    def __str__(self) -> str:
        return "slots"


class Reluctant(Mapping[str, Any]):
    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        yield "key"

    def __len__(self) -> int:
        return 1


class Loose(BaseModel):
    value: Any = None


def scalars() -> st.SearchStrategy[Any]:
    return st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(max_size=8),
        st.decimals(),
        st.datetimes(),
        st.uuids(),
        st.sampled_from([Colour.RED, Mood.GOOD, Level.HIGH, Path("a/b"), ValueError("v"), Silent(), Slots(), print]),
        st.sampled_from(
            [Reluctant(), Usage(input_tokens=1, output_tokens=1, total_tokens=2, cost_usd=Decimal("1E-7"))]
        ),
    )


values = st.recursive(
    scalars(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.sets(st.integers() | st.text(), max_size=4),
        st.dictionaries(st.integers() | st.text() | st.none() | st.just(Colour.RED), inner, max_size=4),
        st.builds(lambda value: Anything(value=value), inner),  # what is mapped is taken apart at every level
        st.builds(Slotted, inner),
        st.builds(lambda value: Loose(value=value), inner),
    ),
)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def containers(value: Any) -> list[Any]:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [
        *([value] if isinstance(value, (dict, list)) else []),
        *(part for item in items for part in containers(item)),
    ]


def test_the_function_is_offered_by_the_package() -> None:
    assert utils.json_safe is json_safe


@given(values)
def test_whatever_goes_in_json_can_be_written_of_what_comes_out(value: Any) -> None:
    json.loads(json.dumps(json_safe(value), allow_nan=False))


@given(json_data)
def test_json_data_stays_equal_and_is_copied(value: Any) -> None:
    before = copy.deepcopy(value)

    safe = json_safe(value)

    assert safe == before == value
    assert not {id(part) for part in containers(safe)} & {id(part) for part in containers(value)}


@given(values)
def test_what_is_safe_stays_as_it_is(value: Any) -> None:
    once = json_safe(value)

    assert json_safe(once) == once


@given(st.integers(1, 6), st.integers(1, 3))
def test_every_leaf_is_converted_once(depth: int, width: int) -> None:
    calls = list[int]()

    class Counted:
        __slots__ = ()

        def __str__(self) -> str:
            calls.append(1)
            return "leaf"

    def tree(levels: int) -> Any:
        if levels == 0:
            return Counted()
        branches = [tree(levels - 1) for _ in range(width)]
        return [{"list": branches}, Slotted(branches), Anything(branches=branches), tuple(branches)][levels % 4]

    json_safe(tree(depth))

    assert len(calls) == width**depth


@pytest.mark.parametrize(
    ("value", "safe"),
    [
        (2**64 + 1, 2**64 + 1),
        (-(10**100), -(10**100)),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (Decimal("0"), "0"),
        (Decimal("1E-7"), "1E-7"),
        (Decimal("NaN"), "NaN"),
        (datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), "2026-01-02T03:04:05+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
        (PurePosixPath("a/b"), "a/b"),
        (ValueError("boom"), "boom"),
        (asyncio.CancelledError(), "CancelledError"),
        (Colour.RED, "red"),
        (Mood.GOOD, "good"),
        (Level.HIGH, 3),
        (b"abc", "<bytes:3>"),
        (bytearray(2), "<bytes:2>"),
        (memoryview(b"abcd"), "<bytes:4>"),
        ((1, "a"), [1, "a"]),
        (Pair(1, 2), [1, 2]),
        (frozenset({1}), [1]),
        (OrderedDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": (1,)}), {"a": [1]}),
        ({1: "a", None: "b", Colour.RED: "c", Mood.GOOD: "d"}, {"1": "a", "None": "b", "red": "c", "good": "d"}),
        ({Silent(): 1}, {"<unserializable>": 1}),
        (Point(1, {"t"}), {"x": 1, "tags": ["t"]}),
        (Slotted(Slotted(b"")), {"value": {"value": "<bytes:0>"}}),
        (Anything(a=Anything(b=Colour.RED)), {"a": {"b": "red"}}),
        (Anything(), {}),
        (Slots(), "slots"),
        (Silent(), "<unserializable>"),
        ([1, Reluctant(), 2], [1, "<unserializable>", 2]),
        ({"ok": 1, "bad": Silent()}, {"ok": 1, "bad": "<unserializable>"}),
        (TextBlock(text="x"), {"type": "text", "visibility": None, "text": "x"}),
        (ToolResult(output={"cost": Decimal("0")}), {"success": True, "output": {"cost": "0"}, "error": None}),
        (Loose(value=Slots()), {"value": "slots"}),
        ({"deep": [Loose(value=b"\xff")]}, {"deep": [{"value": "<bytes:1>"}]}),
    ],
)
def test_each_kind_of_value_has_its_form(value: Any, safe: Any) -> None:
    result = json_safe(value)

    assert result == safe
    assert type(result) is type(safe)


@pytest.mark.parametrize("sign", [1, -1])
def test_an_int_too_long_for_python_to_print_is_exact_in_hexadecimal(sign: int) -> None:
    printable, unprintable = sign * (10**4300 - 1), sign * 10**4300

    assert json_safe([printable, unprintable]) == [printable, hex(unprintable)]


@pytest.mark.parametrize("value", [Anything, print, json, len, "".join, functools.partial, (n for n in [1])])
def test_code_becomes_text(value: Any) -> None:
    assert json_safe(value) == str(value)


def test_a_generator_is_not_consumed() -> None:
    numbers = (number for number in [1, 2])

    json_safe([numbers])

    assert list(numbers) == [1, 2]


def test_a_cycle_is_marked_where_it_closes() -> None:
    loop: dict[str, Any] = {"a": 1}
    loop["self"] = [loop]
    thing = Anything()
    thing.me = thing  # type: ignore[attr-defined]
    model = Loose()
    model.value = {"model": model}

    assert json_safe(loop) == {"a": 1, "self": ["<circular>"]}
    assert json_safe(thing) == {"me": "<circular>"}
    assert json_safe(model) == {"value": {"model": "<circular>"}}


def test_what_is_merely_used_twice_is_shown_twice() -> None:
    shared, thing = {"x": 1}, Anything(x=1)

    assert json_safe([shared, shared, thing, thing]) == [{"x": 1}] * 4


def test_objects_that_all_know_each_other_are_shown_once_each() -> None:
    everyone = [Anything(number=number) for number in range(60)]
    for thing in everyone:
        thing.friends = list(everyone)  # type: ignore[attr-defined]

    text = json.dumps(json_safe({"guest": everyone[0]}))

    assert text.count('"number"') == 60


def test_what_is_nested_too_deeply_for_json_is_cut_off() -> None:
    deep: Any = "core"
    for _ in range(100_000):
        deep = [deep]
    shallow: Any = "core"
    for _ in range(150):
        shallow = {"in": shallow}

    cut = json.dumps(json_safe(deep))

    assert cut == "[" * cut.count("[") + '"<unserializable>"' + "]" * cut.count("]")
    assert 150 < cut.count("[") < 250
    assert json_safe(shallow) == shallow


def test_a_model_keeps_the_form_it_gives_itself() -> None:
    message = Message(role="user", content=[TextBlock(text="x")], seen=datetime(2026, 1, 2, tzinfo=UTC))  # type: ignore[call-arg]

    assert json_safe({"message": message}) == {"message": message.model_dump(mode="json")}


@given(st.text(st.characters(categories=["Cc", "Cs", "Lu", "Zs", "So"])))
def test_sanitized_text_can_be_sent_and_keeps_everything_else(text: str) -> None:
    sanitized = sanitize_text(text)

    assert sanitized == "".join(
        character for character in text if character in "\t\n\r" or category(character)[0] != "C"
    )
    sanitized.encode()
