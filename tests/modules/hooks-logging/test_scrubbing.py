"""What the capability `redaction.scrub` is asked to mask before it is written."""

from typing import Any
from unittest.mock import MagicMock

import pytest


def offer(logs: Any, scrub: Any) -> list[Any]:
    """Offer a scrub that remembers what it was given."""
    given: list[Any] = []

    def remember(obj: Any) -> Any:
        given.append(obj)
        return scrub(obj)

    logs.coordinator.register_capability("redaction.scrub", remember)
    return given


def starred(obj: dict[str, Any]) -> dict[str, Any]:
    return dict.fromkeys(obj, "***")


async def test_a_record_without_stamp_has_its_data_and_error_scrubbed(logs: Any) -> None:
    given = offer(logs, starred)
    await logs.mount()

    await logs.emit("tool:post", session_id="s1", status="ok", error="boom", result={"output": "key"})

    (record,) = logs.records("s1")
    assert set(given[0]) == {"error", "result"}
    assert (record["error"], record["data"]) == ("***", {"result": "***"})
    assert (record["status"], record["session_id"]) == ("ok", "s1")


async def test_a_stamped_record_is_not_scrubbed_again(logs: Any) -> None:
    given = offer(logs, starred)
    await logs.mount()

    await logs.emit("prompt:submit", prompt="[REDACTED:PII]", redaction={"applied": True, "rules": ["pii-basic"]})

    assert given == []
    assert logs.records()[0]["data"] == {"prompt": "[REDACTED:PII]"}


async def test_what_a_stamp_excepts_is_scrubbed_and_the_rest_is_not(logs: Any) -> None:
    messages = [{"role": "user", "content": "key"}]
    given = offer(logs, starred)
    await logs.mount(level="DEBUG")

    await logs.emit(
        "provider:request", provider="p", messages=messages, redaction={"applied": True, "skipped": ["messages"]}
    )

    assert given == [{"messages": messages}]
    assert logs.records()[0]["data"] == {"provider": "p", "messages": "***"}


async def test_a_stamp_that_says_scrubbing_failed_is_no_stamp(logs: Any) -> None:
    given = offer(logs, starred)
    await logs.mount()

    await logs.emit("prompt:submit", prompt="x", redaction={"applied": False, "error": "scrub_failed"})

    assert given == [{"prompt": "x"}]


@pytest.mark.parametrize("answer", [ZeroDivisionError("the key is sk-1"), None, "text", [], MagicMock()])
async def test_when_scrubbing_fails_nothing_of_the_payload_is_written(
    logs: Any, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(obj: Any) -> Any:
        if isinstance(answer, Exception):
            raise answer
        return answer

    offer(logs, fail)
    await logs.mount()

    await logs.emit("tool:post", status="ok", error="sk-2", result="sk-3")

    (record,) = logs.records()
    assert record["data"] == {"redaction_error": True}
    assert record["status"] == "ok"
    assert "sk-" not in logs.path().read_text() + caplog.text


async def test_the_payload_is_scrubbed_after_it_was_reduced(logs: Any) -> None:
    given = offer(logs, dict)
    await logs.mount(strip_raw=True)

    await logs.emit("provider:request", messages=[{"role": "user"}], raw="raw")

    assert list(given[0]) == ["parent_id", "messages"] or list(given[0]) == ["messages"]
    assert set(given[0]["messages"]) == {"count", "hash"}
