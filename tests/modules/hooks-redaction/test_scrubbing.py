"""Data: what is masked in it, what is protected, what is shared."""

import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest
from amplifier_module_hooks_redaction import DEFAULT_ALLOWLIST, DEFAULT_RULES, scrub
from hypothesis import given
from hypothesis import strategies as st

SECRET, PII = "[REDACTED:SECRET]", "[REDACTED:PII]"
KEY, MAIL = "sk-abcdefghijklmnop", "jane@example.com"

IDENTIFIERS = [
    *("session_id", "parent_id", "parent", "parent_session_id", "sub_session_id", "tool_call_id"),
    *("parallel_group_id", "request_id", "span_id", "parent_span_id", "turn_id", "step_id"),
]


@pytest.mark.parametrize("key", IDENTIFIERS)
def test_identifiers_stay_as_they_are_at_any_depth(key: str) -> None:
    data = {key: "4155552671", "nested": [{key: MAIL}]}

    assert scrub(data) is data


def test_an_identifier_that_is_no_plain_value_is_no_way_around() -> None:
    assert scrub({"a": {"parent": {"note": MAIL}}}) == {"a": {"parent": {"note": PII}}}
    assert scrub({"a": {"turn_id": [MAIL]}}) == {"a": {"turn_id": [PII]}}


@pytest.mark.parametrize("key", ["timestamp", "ts", "started_at", "ended_at", "created_at"])
@pytest.mark.parametrize(
    "value", [1700000000, 1700000000.5, "1700000000", "1700000000123", "2024-01-15", "2024-01-15T10:30:00.123456+00:00"]
)
def test_dates_stay_under_date_keys_at_any_depth(key: str, value: Any) -> None:
    data = {key: value, "nested": [{key: value}]}

    assert scrub(data) is data


@pytest.mark.parametrize("key", ["timestamp", "ts", "started_at", "ended_at", "created_at", "cost_usd"])
@pytest.mark.parametrize("value", [MAIL, f"2024-01-15 {MAIL}", "+1 (415) 555-2671"])
def test_date_and_cost_keys_are_no_way_around_not_even_by_allowlist(key: str, value: str) -> None:
    scrubbed = scrub({key: value, "a": {key: [value]}}, allowlist=[key])

    assert value not in str(scrubbed)
    assert PII in scrubbed[key]


@pytest.mark.parametrize("value", [0.0123, "0.0123", "12.34567891", "1e-7", "1234567890", Decimal("0.1234567890123")])
def test_costs_stay_at_any_depth(value: Any) -> None:
    shown = str(value) if isinstance(value, Decimal) else value

    assert scrub({"usage": {"x": {"cost_usd": value}}}) == {"usage": {"x": {"cost_usd": shown}}}


@pytest.mark.parametrize("path", sorted(DEFAULT_ALLOWLIST - {"timestamp", "ts", "usage.cost_usd"}))
def test_paths_of_the_built_in_allowlist_stay(path: str) -> None:
    assert scrub({path: MAIL}) == {path: MAIL}


@pytest.mark.parametrize("path", sorted(DEFAULT_ALLOWLIST - set(IDENTIFIERS)))
def test_they_are_exact_paths_and_count_nowhere_else(path: str) -> None:
    name = path.rpartition(".")[2]

    assert scrub({"nested": {name: MAIL}}) == {"nested": {name: PII}}


def test_entries_of_the_caller_extend_the_allowlist_and_exempt_what_is_below_them() -> None:
    data = {"a": {"b": [MAIL, {"c": MAIL}], "d": MAIL}, "items": [MAIL, MAIL], "model": MAIL}

    scrubbed = scrub(data, allowlist=["a.b", "items[1]"])

    assert scrubbed == {"a": {"b": [MAIL, {"c": MAIL}], "d": PII}, "items": [PII, MAIL], "model": MAIL}


def test_a_path_may_lead_through_lists_and_begin_where_the_caller_says() -> None:
    assert scrub({"a": [{"b": MAIL, "c": MAIL}]}, allowlist=["a[0].b"]) == {"a": [{"b": MAIL, "c": PII}]}
    assert scrub({"b": MAIL, "c": MAIL}, allowlist=["a[0].b"], path="a[0]") == {"b": MAIL, "c": PII}
    assert scrub(MAIL, allowlist=["a"], path="a") == MAIL
    assert scrub(MAIL, path="elsewhere") == PII


def test_keys_that_are_secrets_are_masked_and_numbered_when_they_look_the_same() -> None:
    data = {KEY: 1, KEY + "x": 2, "plain": 3, SECRET: 4, MAIL: 5}

    assert scrub(data) == {SECRET: 1, f"{SECRET}#2": 2, "plain": 3, f"{SECRET}#3": 4, MAIL: 5}


def test_a_masked_key_is_no_secrets_name() -> None:
    once = scrub({KEY: "an ordinary text"})

    assert once == {SECRET: "an ordinary text"}
    assert scrub(once) is once


def test_what_is_masked_already_keeps_its_mask_under_a_secrets_name() -> None:
    once = scrub({"token": "4155552671", "password": "415-555-2671, 415-555-2672", "api_key": "abcdefgh"})

    assert once == {"token": PII, "password": f"{PII}, {PII}", "api_key": SECRET}
    assert scrub(once) is once


def test_what_goes_by_a_secrets_name_is_a_secret() -> None:
    data = {
        "api_key": "abcdefgh",
        "dbPassword": "correct horse",
        "Authorization": "Bearer abcdefgh",
        "headers": {"authorization": "Basic dXNlcjpwYXNz"},
        "max_tokens": "4096",
        "tokenizer": "cl100k_base",
        "password": "short",
        "token": 123456789,
        "token_expires_at": "2024-01-15T10:30:00Z",
    }

    assert scrub(data) == data | {
        "api_key": SECRET,
        "dbPassword": SECRET,
        "Authorization": f"Bearer {SECRET}",
        "headers": {"authorization": f"Basic {SECRET}"},
    }
    assert scrub(data, rules=["pii-basic"]) is data


def test_what_is_not_masked_is_shared_and_nothing_is_changed() -> None:
    data = {"clean": {"list": [1, {"x": "y"}]}, "dirty": {"clean": ["a"], "list": [{"text": KEY}]}, "tuple": (1, 2)}
    before = copy.deepcopy(data)

    scrubbed = scrub(data)

    assert data == before
    assert scrubbed["clean"] is data["clean"]
    assert scrubbed["tuple"] is data["tuple"]
    assert scrubbed["dirty"]["clean"] is data["dirty"]["clean"]
    assert scrubbed["dirty"]["list"] == [{"text": SECRET}]


def test_data_without_anything_to_mask_comes_back_itself() -> None:
    data = {"a": [1, 2.5, True, None, "text", {"b": ()}]}

    assert scrub(data) is data
    assert scrub(dict([("a" + "b", 1)])) == {"ab": 1}


class Word(StrEnum):
    KEY = KEY


class Text(str): ...


@dataclass
class Person:
    mail: str


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (Person(MAIL), {"mail": PII}),
        ({MAIL}, [PII]),
        ((MAIL, 1), [PII, 1]),
        (Word.KEY, SECRET),
        (Text(KEY), SECRET),
        (Decimal("1.50"), "1.50"),
        (datetime(2024, 1, 15, tzinfo=UTC), "2024-01-15T00:00:00+00:00"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (ValueError(MAIL), PII),
        (b"bytes", "<bytes:5>"),
    ],
)
def test_what_json_does_not_have_is_converted_first(value: Any, shown: Any) -> None:
    assert scrub({"deep": [value]}) == {"deep": [shown]}
    assert scrub(value) == shown


def test_numbers_and_truth_values_are_never_touched() -> None:
    data = [4111111111111111, 4155552671, 1.5, True, None]

    assert scrub(data) is data


def test_without_rules_nothing_is_masked() -> None:
    data = {"a": [KEY, MAIL]}

    assert scrub(data, rules=[]) is data
    assert tuple(DEFAULT_RULES) == ("secrets", "pii-basic")


@given(st.data())
def test_scrubbing_twice_is_scrubbing_once(sensitive_texts: list[str], data: st.DataObject) -> None:
    texts = st.sampled_from(sensitive_texts) | st.text(max_size=10)
    keys = texts | st.sampled_from(["token", "timestamp", "session_id", "messages", "a", "model", "Authorization"])
    value = data.draw(
        st.recursive(
            texts | st.integers() | st.none() | st.decimals() | st.datetimes(),
            lambda inner: (
                st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3) | st.tuples(inner, inner)
            ),
            max_leaves=12,
        )
    )

    once = scrub(value)

    assert scrub(once) == once
