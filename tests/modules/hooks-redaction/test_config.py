"""The configuration of a guard: whatever is wrong with it, the module mounts and masks."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_hooks_redaction import mount
from processes import Started, leaving_nothing

from amplifier_core.testing import MockCoordinator
from amplifier_kit.redaction.pattern_process import is_plain

SECRET, PII = "[REDACTED:SECRET]", "[REDACTED:PII]"
TEXT = "sk-abcdefghijklmnop jane@example.com"

Redact = Callable[..., Any]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    with leaving_nothing(monkeypatch) as found:
        yield found


@pytest.fixture
def a_thousand_files() -> Iterator[None]:
    """Files that are open, so that the next one has a number above those that `select` takes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (2048, hard))
    with ExitStack() as files:
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        while files.enter_context(Path(os.devnull).open()).fileno() < 1024:
            pass
        yield


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


async def test_a_text_on_which_a_pattern_never_finishes_is_masked_whole_and_the_next_one_as_usual(
    coordinator: MockCoordinator, started: Started, caplog: pytest.LogCaptureFixture
) -> None:
    cleanup = await mount(coordinator, {"custom_patterns": [r"(a+)+$", r"emp-\d+"]})
    scrub = coordinator.get_capability("redaction.scrub")

    assert scrub("a" * 60 + "!") == SECRET
    assert scrub("emp-12 is here") == f"{SECRET} is here"
    assert messages_at(caplog, "WARNING") == [
        "a pattern took too long for a text of 61 characters, which is masked whole"
    ]
    assert len(started.pids()) == 1

    cleanup()

    assert started.pids() == []


async def test_patterns_of_ones_own_are_found_although_what_searches_for_them_was_killed(
    coordinator: MockCoordinator, started: Started
) -> None:
    cleanup = await mount(coordinator, {"custom_patterns": [r"emp-\d+"]})
    scrub = coordinator.get_capability("redaction.scrub")
    assert scrub("one emp-1") == f"one {SECRET}"

    started.end()

    assert scrub("two emp-2") == f"two {SECRET}"
    cleanup()


@pytest.mark.usefixtures("a_thousand_files")
async def test_patterns_of_ones_own_are_found_in_a_process_with_a_thousand_open_files(redact: Redact) -> None:
    seen = await redact("prompt:submit", {"prompt": "one emp-1"}, custom_patterns=[r"emp-\d+"])

    assert seen["prompt"] == f"one {SECRET}"


@pytest.mark.parametrize("pattern", [r"ACME-\d{4}", r"\bpin\b", "[]a-c]{2}", r"[^\]]x", r"a\.b\*c", "é"])
def test_a_plain_pattern_is_one_that_takes_no_long_time(pattern: str) -> None:
    assert is_plain(pattern)


@pytest.mark.parametrize("pattern", ["a+", "a*b", "(a)", "a|b", "a{2,}", "a{200}", r"\d?", r"(.)\1", "a{2}+", "(?i)a"])
def test_any_other_pattern_may_take_one(pattern: str) -> None:
    assert not is_plain(pattern)


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
