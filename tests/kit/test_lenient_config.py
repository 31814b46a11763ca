"""Configuration that never fails a mount: what cannot be used is reported and replaced."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import BaseModel

from amplifier_kit.config import LenientConfig


def config(**values: Any) -> LenientConfig:
    return LenientConfig("tool-x", values)


@pytest.mark.parametrize("value", [True, "1", "true", "YES", " On ", 1])
def test_words_for_on(value: Any) -> None:
    assert config(key=value).boolean("key", False) is True


@pytest.mark.parametrize("value", [False, "0", "False", "no", "OFF", 0])
def test_words_for_off(value: Any) -> None:
    assert config(key=value).boolean("key", True) is False


def test_numbers_may_be_text() -> None:
    assert config(key="12").integer("key", 1) == 12
    assert config(key="1.5").number("key", 1.0) == 1.5


@pytest.mark.parametrize(
    ("reader", "value", "default"),
    [
        ("boolean", "perhaps", True),
        ("boolean", [], False),
        ("integer", "many", 3),
        ("integer", 1.5, 3),
        ("integer", True, 3),
        ("number", "nan", 2.5),
        ("text", 7, "x"),
        ("strings", "a", ["x"]),
        ("strings", [1], None),
        ("mapping", [], {"a": 1}),
        ("items", {}, [1]),
    ],
)
def test_a_value_that_does_not_fit_is_replaced_by_the_default_with_one_warning(
    reader: str, value: Any, default: Any, caplog: pytest.LogCaptureFixture
) -> None:
    read = getattr(config(key=value), reader)("key", default)

    assert read == default
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert all(part in record.message for part in ("tool-x", "'key'", repr(value), repr(default)))


def test_bounds_and_choices_are_named(caplog: pytest.LogCaptureFixture) -> None:
    assert config(key=-1).integer("key", 5, minimum=0) == 5
    assert config(key="c").choice("key", "a", ("a", "b")) == "a"
    assert "≥ 0" in caplog.messages[0]
    assert "one of a, b" in caplog.messages[1]


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_string_counts_as_unset(value: Any, caplog: pytest.LogCaptureFixture) -> None:
    given = config(key=value)

    assert given.text("key", "default") == "default"
    assert not given.is_set("key")
    assert caplog.records == []


def test_a_reference_that_was_never_expanded_counts_as_unset_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert config(key="${HOME_DIR}").text("key", None) is None
    assert config(key="a ${HOME_DIR}").text("key", None) == "a ${HOME_DIR}"
    (record,) = caplog.records
    assert (record.levelname, "'key'" in record.message, "${HOME_DIR}" in record.message) == ("WARNING", True, True)


@pytest.mark.parametrize("is_set", [True, False])
def test_the_warning_says_unset_only_of_a_variable_that_is(
    is_set: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTES_DIR", "/notes") if is_set else monkeypatch.delenv("NOTES_DIR", raising=False)

    assert config(key="${NOTES_DIR}").text("key", None) is None

    expected = "tool-x: config key 'key' is ${NOTES_DIR}, which the application has not expanded; it counts as unset"
    assert caplog.messages == [expected if is_set else f"{expected} (NOTES_DIR is not set in the environment, either)"]


class Settings(BaseModel):
    key: int = 7


@pytest.mark.parametrize("given", [Settings(), SimpleNamespace(key=7)], ids=["model", "namespace"])
def test_a_settings_object_is_read_like_a_mapping(given: Any, caplog: pytest.LogCaptureFixture) -> None:
    assert LenientConfig("tool-x", given).integer("key", 4) == 7
    assert caplog.records == []


def test_unknown_keys_are_named_each_with_the_key_it_resembles(caplog: pytest.LogCaptureFixture) -> None:
    given = config(timeut=1, colour="red", timeout=2)
    given.integer("timeout", 1)

    given.warn_unknown()

    assert caplog.messages == [
        "tool-x: unknown config key 'colour' is ignored",
        "tool-x: unknown config key 'timeut' is ignored; did you mean 'timeout'?",
    ]


def test_keys_of_the_infrastructure_are_ignored_silently(caplog: pytest.LogCaptureFixture) -> None:
    config(id="a", module="b", source="c", instance_id="d", name="e", priority=1, working_dir="f").warn_unknown()

    assert caplog.records == []


@pytest.mark.parametrize("given", [None, {}, [], 7, "text"])
def test_whatever_is_given_in_its_place_reads_as_an_empty_configuration(given: Any) -> None:
    assert LenientConfig("tool-x", given).integer("key", 4) == 4


def test_what_it_was_given_is_never_changed() -> None:
    given = {"a": "", "b": "${X}", "c": {"d": 1}}

    LenientConfig("tool-x", given).mapping("c", {})["d"] = 2

    assert given == {"a": "", "b": "${X}", "c": {"d": 1}}
