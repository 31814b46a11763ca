"""Masking takes time in proportion to the text, also where a text is made to prevent that."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from amplifier_module_hooks_redaction import mask_text, scrub

CHARACTERS = [
    "a",
    "A",
    "s",
    "é",
    "1",
    "0",
    " ",
    "\n",
    "\t",
    "-",
    "_",
    ".",
    "@",
    ":",
    "/",
    "=",
    "+",
    "(",
    "[",
    '"',
    "\\",
    "%",
]
PIECES = [
    "AKIA",
    "xoxb-",
    "eyJ",
    "eyJabcdefg.",
    r"\neyJ",
    "1meyJ",
    "%20eyJ",
    "ghp_",
    "npm_",
    "1//",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\n-----END ",
    "://a:",
    "://a:b@",
    "secret",
    "secret=",
    'secret="',
    "password: 1234567 ",
    "authorization: bearer ",
    "curl -u a:",
    "curl ",
    "curl -u ",
    "curl -ua",
    "curl '",
    "cookie: a=bcde; ",
    "login a password ",
    "123456:",
    "MTk4NjIyNDgzNDcxOTI1MjQ4.Cl2FMQ.",
    "pypi-a",
    "SG.a",
    "a_key=",
    "?sig=",
    "://ada:pa/ss",
    "a@",
    "a@a.",
    "a@a.aa ",
    "1 ",
    "1-",
    "(1",
    "12.34.",
    "111-11-",
    "2024-01-15 ",
    "4111 1111 1111 1111 ",
    "[REDACTED:PII]1",
]
SMALL, LARGE = 2**14, 2**18


def cpu_seconds(function: Callable[[Any], object], argument: Any) -> float:
    started = time.process_time()
    function(argument)
    return time.process_time() - started


def plain_scan(text: str) -> int:
    return sum(ord(character) for character in text)


@pytest.mark.parametrize("piece", [*CHARACTERS, *PIECES])
def test_masking_costs_a_bounded_multiple_of_reading_the_text(piece: str) -> None:
    for size in (SMALL, LARGE):
        text = (piece * (size // len(piece) + 1))[:size]

        ratio = cpu_seconds(mask_text, text) / cpu_seconds(plain_scan, text)

        assert ratio < 150  # it is less than 50; where the square of the size counts it is thousands


def test_scrubbing_many_entries_whose_keys_look_alike_is_linear_too() -> None:
    costs = []
    for count in (500, 8_000):
        entries = {f"sk-abcdefghij{number}": number for number in range(count)}

        costs.append(cpu_seconds(scrub, entries))

    assert costs[1] < 16 * 5 * costs[0]
    assert len(scrub(entries)) == count


def test_a_secret_is_found_wherever_it_stands_in_a_text_of_several_megabytes() -> None:
    token = "sk-abcdefghijklmnop"
    filling = "lorem ipsum " * 5_000
    text = f"{token} " + f"{filling} {token} " * 45

    masked = mask_text(text)

    assert len(text) > 2 * 1024 * 1024
    assert token not in masked
    assert masked.count("[REDACTED:SECRET]") == 46


def test_a_key_block_longer_than_any_window_is_masked_as_a_whole() -> None:
    block = "-----BEGIN PRIVATE KEY-----\n" + "MIIEabcdefgh\n" * 200_000 + "-----END PRIVATE KEY-----"

    assert mask_text(f"before {block} after") == "before [REDACTED:SECRET] after"
