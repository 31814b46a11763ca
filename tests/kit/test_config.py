"""Reading a module's configuration: conversions, defaults, refusals that help, and the safe side for guards."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from amplifier_kit.config import ModuleConfig

Read = Callable[[ModuleConfig], Any]


def config(**keys: Any) -> ModuleConfig:
    return ModuleConfig("tool-x", keys)


READERS: dict[str, tuple[Read, Any]] = {
    "integer": (lambda keys: keys.integer("k", 5, minimum=1, maximum=9), 5),
    "number": (lambda keys: keys.number("k", 0.5, minimum=0, maximum=1), 0.5),
    "above": (lambda keys: keys.number("k", 1.0, above=0), 1.0),
    "boolean": (lambda keys: keys.boolean("k", True), True),
    "text": (lambda keys: keys.text("k", None), None),
    "choice": (lambda keys: keys.choice("k", "a", ("a", "b")), "a"),
    "strings": (lambda keys: keys.strings("k", None), None),
    "mapping": (lambda keys: keys.mapping("k", {"a": 1}), {"a": 1}),
    "items": (lambda keys: keys.items("k", [1]), [1]),
}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("given", [{}, {"k": None}], ids=["absent", "none"])
def test_a_key_that_is_not_set_has_its_default(kind: str, given: dict[str, Any]) -> None:
    read, default = READERS[kind]

    assert read(ModuleConfig("tool-x", given)) == default
    assert read(ModuleConfig("tool-x", None)) == default


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("integer", 1, 1),
        ("integer", "9", 9),
        ("number", 1, 1.0),
        ("number", "0.25", 0.25),
        ("above", 0.001, 0.001),
        ("boolean", "False", False),
        ("boolean", " true ", True),
        ("boolean", False, False),
        ("text", "", ""),
        ("choice", "b", "b"),
        ("strings", ["a", "b"], ["a", "b"]),
        ("strings", [], []),
        ("mapping", {}, {}),
        ("items", [{}, 1], [{}, 1]),
    ],
)
def test_a_value_that_fits_is_converted(kind: str, value: Any, expected: Any) -> None:
    read, _ = READERS[kind]

    assert read(config(k=value)) == expected


BAD = [
    ("integer", 0, "an integer ≥ 1 and ≤ 9"),
    ("integer", 10, "an integer ≥ 1 and ≤ 9"),
    ("integer", 2.0, "an integer"),
    ("integer", "2.5", "an integer"),
    ("integer", True, "an integer"),
    ("integer", [], "an integer"),
    ("number", 1.1, "a number ≥ 0 and ≤ 1"),
    ("number", "much", "a number"),
    ("number", False, "a number"),
    ("number", float("nan"), "a number"),
    ("number", "inf", "a number"),
    ("number", 10**400, "a number"),
    ("above", 0, "a number > 0"),
    ("boolean", 1, "true or false"),
    ("boolean", "yes", "true or false"),
    ("text", 7, "a string"),
    ("choice", "c", "one of a, b"),
    ("choice", [], "one of a, b"),
    ("strings", "a", "a list of strings"),
    ("strings", ["a", 1], "a list of strings"),
    ("mapping", [], "a mapping"),
    ("items", "ab", "a list"),
]


@pytest.mark.parametrize(("kind", "value", "allowed"), BAD)
def test_a_value_that_does_not_fit_is_refused_with_module_key_value_and_range(
    kind: str, value: Any, allowed: str
) -> None:
    read, _ = READERS[kind]

    with pytest.raises(ValueError, match="allowed: ") as refusal:
        read(config(k=value))

    assert str(refusal.value).startswith(f"tool-x: config key 'k' is {value!r}, allowed: {allowed}")


@pytest.mark.parametrize(("kind", "value", "allowed"), BAD)
def test_a_guard_takes_the_safe_value_and_says_so(
    kind: str, value: Any, allowed: str, caplog: pytest.LogCaptureFixture
) -> None:
    read, default = READERS[kind]

    assert read(ModuleConfig("hooks-x", {"k": value}, is_guard=True)) == default

    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert f"'k' is {value!r}" in record.message


@pytest.mark.parametrize("given", [[], "text", 7])
def test_a_configuration_that_is_no_mapping_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match="a mapping"):
        ModuleConfig("tool-x", given)


def test_for_a_guard_it_is_as_good_as_none() -> None:
    assert ModuleConfig("hooks-x", ["text"], is_guard=True).integer("k", 5) == 5  # type: ignore[arg-type]


def test_an_older_name_is_read_when_the_key_itself_is_not_set() -> None:
    assert config(old=1).integer("new", 5, aliases=["old"]) == 1
    assert config(old=1, new=2).integer("new", 5, aliases=["old"]) == 2
    assert config(old=0.5).number("new", 1.0, aliases=["old"]) == 0.5
    assert config(old="x").text("new", None, aliases=["old"]) == "x"


def test_the_name_that_was_used_is_the_one_that_is_refused() -> None:
    with pytest.raises(ValueError, match="'old'"):
        config(old="x").integer("new", 5, aliases=["old"])


def test_keys_nobody_read_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    keys = config(known=1, accepted=2, raw=3, typo=4, other=5)
    keys.integer("known", 0)
    assert keys.accept("accepted", "absent") == ["accepted"]
    assert (keys.raw("raw"), keys.raw("absent")) == (3, None)

    keys.warn_unknown()

    (record,) = caplog.records
    assert record.message == "tool-x: unknown config keys are ignored: other, typo"


def test_without_such_keys_nothing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    keys = config(known=1)
    keys.integer("known", 0)

    keys.warn_unknown()

    assert caplog.records == []


def test_what_is_handed_out_is_a_copy() -> None:
    given = {"m": {"a": 1}, "l": [1]}
    keys = ModuleConfig("tool-x", given)

    keys.mapping("m", {})["b"] = 2
    keys.items("l", []).append(2)

    assert given == {"m": {"a": 1}, "l": [1]}


def test_a_key_is_set_when_it_has_a_value_of_its_own() -> None:
    keys = config(a=0, b=None)

    assert (keys.is_set("a"), keys.is_set("b"), keys.is_set("c")) == (True, False, False)
