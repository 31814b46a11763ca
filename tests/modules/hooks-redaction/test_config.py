"""The configuration of a guard: whatever is wrong with it, the module mounts and masks."""

from collections.abc import Callable
from typing import Any

import pytest

SECRET, PII = "[REDACTED:SECRET]", "[REDACTED:PII]"
TEXT = "sk-abcdefghijklmnop jane@example.com"

Redact = Callable[..., Any]


def messages_at(caplog: pytest.LogCaptureFixture, level: str) -> list[str]:
    return [record.message for record in caplog.records if record.levelname == level]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("rules", "secrets"),
        ("rules", [1]),
        ("rules", {"secrets": True}),
        ("rules", ["secret", "pii"]),
        ("allowlist", "prompt"),
        ("allowlist", [1]),
        ("skip_events", "prompt:submit"),
        ("priority", "first"),
        ("custom_patterns", 7),
    ],
)
async def test_a_value_that_does_not_fit_is_logged_and_everything_is_masked(
    redact: Redact, key: str, value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seen = await redact("prompt:submit", {"prompt": TEXT}, **{key: value})

    (error,) = messages_at(caplog, "ERROR")
    assert all(part in error for part in ("hooks-redaction", repr(key), repr(value)))
    assert seen["prompt"] == f"{SECRET} {PII}"
    assert seen["redaction"] == {"applied": True, "rules": ["secrets", "pii-basic"]}


async def test_an_unknown_rule_among_others_is_ignored_with_a_warning(
    redact: Redact, caplog: pytest.LogCaptureFixture
) -> None:
    seen = await redact("prompt:submit", {"prompt": TEXT}, rules=["pii-basic", "pii-full"])

    assert seen["prompt"] == f"sk-abcdefghijklmnop {PII}"
    assert seen["redaction"]["rules"] == ["pii-basic"]
    assert "pii-full" in messages_at(caplog, "WARNING")[0]


async def test_enabled_events_is_ignored_with_a_warning(redact: Redact, caplog: pytest.LogCaptureFixture) -> None:
    seen = await redact("prompt:submit", {"prompt": TEXT}, enabled_events=["tool:*"])

    assert seen["prompt"] == f"{SECRET} {PII}"
    (warning,) = messages_at(caplog, "WARNING")
    assert "enabled_events" in warning


async def test_an_unknown_key_is_warned_about(redact: Redact, caplog: pytest.LogCaptureFixture) -> None:
    await redact("prompt:submit", {"prompt": TEXT}, allow_list=["prompt"])

    (warning,) = messages_at(caplog, "WARNING")
    assert "allow_list" in warning


async def test_patterns_of_ones_own_are_masked_with_their_label(redact: Redact) -> None:
    patterns = [r"ACME-\d{4}", {"pattern": r"(?P<kind>emp)-\d+", "label": "employee"}]

    seen = await redact("prompt:submit", {"prompt": f"ACME-1234 emp-7 {TEXT}"}, custom_patterns=patterns)

    assert seen["prompt"] == f"{SECRET} [REDACTED:EMPLOYEE] {SECRET} {PII}"
    assert seen["redaction"]["rules"] == ["secrets", "pii-basic", "custom"]


async def test_patterns_of_ones_own_are_found_in_the_shortest_texts(redact: Redact) -> None:
    seen = await redact("prompt:submit", {"pin": "4711", "room": ["B7", ""]}, custom_patterns=[r"\b\d{4}\b", "B7"])

    assert (seen["pin"], seen["room"]) == (SECRET, [SECRET, ""])


async def test_patterns_of_ones_own_need_no_other_rules(redact: Redact) -> None:
    seen = await redact("prompt:submit", {"prompt": f"ACME-1234 {TEXT}"}, rules=[], custom_patterns=[r"ACME-\d{4}"])

    assert seen["prompt"] == f"{SECRET} {TEXT}"
    assert seen["redaction"] == {"applied": True, "rules": ["custom"]}


@pytest.mark.parametrize("pattern", ["(", "a{99999999999}", 7, None, {"label": "X"}, {"pattern": "["}, b"x"])
async def test_a_pattern_that_is_none_is_skipped_with_an_error(
    redact: Redact, pattern: Any, caplog: pytest.LogCaptureFixture
) -> None:
    seen = await redact("prompt:submit", {"prompt": f"{TEXT} ACME-1"}, custom_patterns=[pattern, r"ACME-\d"])

    assert seen["prompt"] == f"{SECRET} {PII} {SECRET}"
    assert "custom_patterns[0]" in messages_at(caplog, "ERROR")[0]


@pytest.mark.parametrize("label", ["two words", "]", "x" * 40])
async def test_a_label_that_is_no_word_is_replaced(
    redact: Redact, label: str, caplog: pytest.LogCaptureFixture
) -> None:
    seen = await redact("prompt:submit", {"prompt": "ACME-1"}, custom_patterns=[{"pattern": "ACME-1", "label": label}])

    assert seen["prompt"] == SECRET
    assert len(messages_at(caplog, "ERROR")) == 1


@pytest.mark.parametrize("pattern", ["[A-Z]+", "x*", "REDACTED|SECRET", r"\W+", r"T\] ?", r"\[R"])
async def test_a_pattern_that_finds_masks_or_nothing_leaves_nothing_to_be_masked_again(
    redact: Redact, pattern: str
) -> None:
    custom = [{"pattern": pattern, "label": "X"}]

    seen = await redact("prompt:submit", {"prompt": f"{TEXT} ABC"}, custom_patterns=custom)
    again = await redact("prompt:complete", {"prompt": seen["prompt"]})

    assert "sk-abc" not in seen["prompt"]
    assert again["prompt"] == seen["prompt"]
