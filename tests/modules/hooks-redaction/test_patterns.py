"""What is masked in a text, and what is not."""

import json
import string
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from amplifier_module_hooks_redaction import PII_PATTERNS, SECRET_PATTERNS, mask_text, scrub
from hypothesis import given
from hypothesis import strategies as st

SECRET, PII = "[REDACTED:SECRET]", "[REDACTED:PII]"

WRAPPINGS = {
    "alone": "{}",
    "prose": "Here it is: {} and that was it.",
    "end of a sentence": "I sent you {}.",
    "parentheses": "the thing ({})",
    "quotes": 'x = "{}"',
    "lines": "first\n{}\nlast",
    "escaped lines": r"first\n{}\nlast",
    "terminal colours": "\x1b[01;31m\x1b[K{}\x1b[m\x1b[K",
    "non-ASCII": "schlüssel → {} ← ende",
}


@pytest.mark.parametrize("wrapping", WRAPPINGS.values(), ids=WRAPPINGS)
def test_each_secret_format_is_masked_inside_prose(secrets: dict[str, tuple[str, str]], wrapping: str) -> None:
    for name, (text, hidden) in secrets.items():
        masked = mask_text(wrapping.replace("{}", text))

        assert hidden not in masked, name
        assert masked.rstrip(".") == wrapping.replace("{}", text.replace(hidden, SECRET)).rstrip("."), name


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_each_secret_format_is_masked_inside_json_text_and_json_in_json(
    secrets: dict[str, tuple[str, str]], depth: int
) -> None:
    for name, (text, hidden) in secrets.items():
        for _ in range(depth):
            text, hidden = json.dumps({"output": [text, "rest"]}), json.dumps(hidden)[1:-1]

        masked = mask_text(text)

        assert hidden not in masked, name
        assert SECRET in masked, name
        assert "rest" in masked, name
        json.loads(masked)


def test_each_secret_format_is_masked_inside_nested_lists(secrets: dict[str, tuple[str, str]]) -> None:
    for name, (text, hidden) in secrets.items():
        value: Any = ["first", [{"deeper": [text]}], (text,)]

        scrubbed = scrub(value)

        shown = text.replace(hidden, SECRET)
        assert scrubbed == ["first", [{"deeper": [shown]}], [shown]], name


@pytest.mark.parametrize("wrapping", ["{}", "call {} now", "({})", '"{}"', r"a\n{}\nb", "is it {}."])
def test_personal_data_is_masked(personal: dict[str, str], wrapping: str) -> None:
    for name, text in personal.items():
        assert mask_text(wrapping.replace("{}", text)) == wrapping.replace("{}", PII), name


@pytest.mark.parametrize("wrapping", ["{}", "see {} there", "({})", '"{}"', "key={}", "a\n{}\nb", "{},{}", "is it {}."])
def test_each_harmless_text_stays_as_it_is(harmless: dict[str, str], wrapping: str) -> None:
    for name, plain in harmless.items():
        text = wrapping.replace("{}", plain)

        assert mask_text(text) is text, name


def test_nothing_is_masked_in_two_thousand_lines_without_a_secret() -> None:
    lines = (Path(__file__).parent / "harmless.txt").read_text(encoding="utf-8").splitlines()

    masked = [line for line in lines if mask_text(line) != line]

    assert len(lines) >= 2000
    assert masked == []


def test_what_only_looks_like_a_beginning_is_left_alone() -> None:
    for text in ("AKIA123", "ghp_short", "sk-short", "eyJhbGci.x.y", "npm_install", "xoxb-", "AIzaShort", "glpat-x"):
        assert mask_text(text) == text


def test_of_a_private_key_without_an_end_all_that_there_is_is_masked() -> None:
    body = "MIIEowIBAAKCAQEA" * 4
    text = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n{body}\nMIIE"

    assert mask_text(text) == SECRET
    assert mask_text(f"{text}\n{text}") == f"{SECRET}\n{SECRET}"
    assert mask_text(f"{text}\nand no more of it") == f"{SECRET}\nand no more of it"
    assert mask_text(text.replace("\n", "\\n")) == SECRET
    assert mask_text(text.replace("\n", "\n  12\t")) == SECRET
    assert mask_text("-----END PRIVATE KEY----- and no beginning") == "-----END PRIVATE KEY----- and no beginning"


def test_only_the_value_of_an_assignment_is_masked() -> None:
    assert mask_text('{"api_key": "abcdefgh", "n": 1}') == f'{{"api_key": "{SECRET}", "n": 1}}'
    assert mask_text("os.environ['API_TOKEN'] = 'abcdefgh'") == f"os.environ['API_TOKEN'] = '{SECRET}'"
    assert mask_text('password: "it \\"is\\" quoted", x') == f'password: "{SECRET}", x'


@pytest.mark.parametrize("value", ["1234567", "12345678", "3.14159265", "1,234,567.89", "short", "2024-01-15"])
def test_numbers_dates_and_short_words_are_no_secrets_whatever_their_name(value: str) -> None:
    assert mask_text(f"token={value}", rules=["secrets"]) == f"token={value}"


def test_a_card_number_must_pass_the_check_of_its_digits() -> None:
    assert mask_text("4111111111111111") == PII
    assert mask_text("4111111111111112") == "4111111111111112"
    assert mask_text("4111 1111 1111 1111 12/25") == f"{PII} 12/25"


def test_where_a_secret_and_personal_data_overlap_it_is_a_secret() -> None:
    assert mask_text("password=jane@example.com") == f"password={SECRET}"


def test_secrets_next_to_each_other_are_all_masked() -> None:
    assert mask_text("AKIAIOSFODNN7EXAMPLEsk-abcdefghijkl") == SECRET * 2


def test_rules_can_be_chosen() -> None:
    text = "sk-abcdefghijkl jane@example.com"

    assert mask_text(text, rules=["secrets"]) == f"{SECRET} jane@example.com"
    assert mask_text(text, rules=["pii-basic"]) == f"sk-abcdefghijkl {PII}"
    assert mask_text(text, rules=[]) is text


def test_the_exported_patterns_say_what_they_are() -> None:
    names = [pattern.name for pattern in (*SECRET_PATTERNS, *PII_PATTERNS)]

    assert len(set(names)) == len(names) > 10


words = st.text(alphabet=string.ascii_letters + " .,;", max_size=20)


def around(value: str, before: str, after: str) -> str:
    return f"{before} {value} {after}"


@given(st.datetimes(timezones=st.none() | st.just(UTC)), st.sampled_from(["T", " "]), words, words)
def test_no_timestamp_is_ever_masked(moment: datetime, separator: str, before: str, after: str) -> None:
    text = around(moment.isoformat(separator), before, after)

    assert mask_text(text) == text


@given(st.uuids(), words, words)
def test_no_uuid_is_ever_masked(uuid: UUID, before: str, after: str) -> None:
    for form in (str(uuid), uuid.urn, f"{{{uuid}}}"):
        text = around(form, before, after)
        assert mask_text(text) == text


@given(st.sampled_from([16, 20, 32, 64]).flatmap(lambda size: st.binary(min_size=size, max_size=size)), words)
def test_no_hash_is_ever_masked(digest: bytes, before: str) -> None:
    text = around(f"a{digest.hex()[1:]}", before, "")

    assert mask_text(text) == text


@given(
    st.decimals(min_value=0, max_value=10**12, places=2) | st.decimals(min_value=0, max_value=99, places=8),
    st.sampled_from(["{:f}", "${:f}", "{:f} EUR", "{:,f}", "${:,f}", "€{:,f}"]),
    words,
)
def test_no_price_is_ever_masked(price: Decimal, form: str, before: str) -> None:
    text = around(form.format(price), before, "")

    assert mask_text(text) == text


@given(st.ip_addresses(), st.lists(st.integers(0, 999), min_size=2, max_size=3), words)
def test_no_address_and_no_version_is_ever_masked(address: Any, numbers: list[int], before: str) -> None:
    text = around(f"{address} {'.'.join(map(str, numbers))}.x v{'.'.join(map(str, numbers))}", before, "")

    assert mask_text(text) == text


@given(st.data())
def test_masking_twice_is_masking_once(sensitive_texts: list[str], data: st.DataObject) -> None:
    part = (
        st.sampled_from(sensitive_texts) | st.text(max_size=12) | st.sampled_from([SECRET, PII, '"', "=", ": ", "\\"])
    )
    text = "".join(data.draw(st.lists(part, max_size=8)))

    once = mask_text(text)

    assert mask_text(once) == once


@given(st.data())
def test_no_secret_between_spaces_survives_whatever_stands_around_it(
    sensitive_texts: list[str], data: st.DataObject
) -> None:
    token = data.draw(st.sampled_from([text for text in sensitive_texts if text.startswith(("sk-", "ghp_", "AKIA"))]))
    before, after = data.draw(st.text(max_size=30)), data.draw(st.text(max_size=30))

    assert token not in mask_text(f"{before} {token} {after}")
