"""Data made fit for logs."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core import utils
from amplifier_core.utils.truncate import SENSITIVE_KEYS, redact_secrets, truncate_values

PROMISED_KEYS = [
    "api_key", "apikey", "api-key", "secret", "password", "token", "credential", "credentials", "private_key",
    "privatekey", "auth", "authorization",
]  # fmt: skip
keys = st.sampled_from(["name", "token", "API_KEY", "max_token", "Authorization", "n"])
data = st.recursive(
    st.none() | st.integers() | st.text(max_size=12) | st.tuples(st.text(max_size=12)),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
)


def containers(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value, *(found for item in value.values() for found in containers(item))]
    if isinstance(value, list):
        return [value, *(found for item in value for found in containers(item))]
    return []


def strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [found for item in items for found in strings(item)]


def test_the_helpers_are_offered_by_the_package() -> None:
    assert utils.truncate_values is truncate_values
    assert utils.redact_secrets is redact_secrets
    assert utils.SENSITIVE_KEYS is SENSITIVE_KEYS


def test_a_long_string_is_cut_and_says_by_how_much() -> None:
    assert truncate_values("abcdef", max_length=4) == "abcd... (truncated 2 chars)"


def test_the_limit_itself_still_fits() -> None:
    assert truncate_values("abcd", max_length=4) == "abcd"
    assert truncate_values("x" * 180) == "x" * 180
    assert truncate_values("x" * 181) == "x" * 180 + "... (truncated 1 chars)"


def test_dicts_and_lists_are_searched_and_other_types_pass() -> None:
    marker = object()
    value = {"long": ["abcdef", {"deep": "abcdef"}], "tuple": ("abcdef",), "number": 123456, "object": marker}

    assert truncate_values(value, 4) == {
        "long": ["abcd... (truncated 2 chars)", {"deep": "abcd... (truncated 2 chars)"}],
        "tuple": ("abcdef",),
        "number": 123456,
        "object": marker,
    }


@given(data)
def test_truncating_returns_copies_and_no_string_keeps_more_than_the_limit(value: Any) -> None:
    before = copy.deepcopy(value)

    cut = truncate_values(value, 5)

    assert value == before
    assert not {id(part) for part in containers(cut)} & {id(part) for part in containers(value)}
    assert all(len(text) <= 5 or "... (truncated " in text for text in strings(cut))


@pytest.mark.parametrize(
    "key",
    [*PROMISED_KEYS, "API_KEY", "Authorization"],
)
@pytest.mark.parametrize("value", ["s3cret", None, {"nested": 1}, ["x"]])
def test_the_value_of_a_sensitive_key_is_redacted_whatever_it_is(key: str, value: Any) -> None:
    assert redact_secrets([{key: value}]) == [{key: "[REDACTED]"}]


@pytest.mark.parametrize("key", ["max_token", "tokens", "author", "secret_name", 1, None, ("token",)])
def test_keys_match_as_a_whole(key: Any) -> None:
    assert redact_secrets({key: "kept"}) == {key: "kept"}


def test_the_sensitive_keys_can_be_chosen() -> None:
    assert redact_secrets({"PIN": 1, "token": 2}, {"pin"}) == {"PIN": "[REDACTED]", "token": 2}


def test_tuples_pass_through() -> None:
    value = ({"token": "kept"},)

    assert redact_secrets({"x": value})["x"] is value


def test_no_other_keys_are_sensitive() -> None:
    assert isinstance(SENSITIVE_KEYS, frozenset)
    assert set(PROMISED_KEYS) == SENSITIVE_KEYS


@given(data)
def test_redacting_returns_copies_and_twice_is_once(value: Any) -> None:
    before = copy.deepcopy(value)

    redacted = redact_secrets(value)

    assert value == before
    assert not {id(part) for part in containers(redacted)} & {id(part) for part in containers(value)}
    assert redact_secrets(redacted) == redacted
    assert all(
        entry == "[REDACTED]"
        for part in containers(redacted)
        if isinstance(part, dict)
        for key, entry in part.items()
        if key.lower() in SENSITIVE_KEYS
    )
