"""One call of a provider: its options, its events, its retries, its response."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import ChatRequest, ChatResponse, Usage
from amplifier_core.llm_errors import AuthenticationError, LLMTimeoutError, RateLimitError
from amplifier_core.message_models import RedactedThinkingBlock, TextBlock, ThinkingBlock, ToolCall, ToolCallBlock
from amplifier_core.testing import EventRecorder
from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.config import LenientConfig
from amplifier_kit.providers.call import ProviderCall, read_raw, usage_payload
from amplifier_kit.providers.errors import parse_retry_after, read_retry_config
from amplifier_kit.providers.options import OptionDefaults, read_options
from amplifier_kit.providers.response import ProviderResponse, parse_tool_calls
from amplifier_kit.providers.stream import ProviderEvents

NO_WAIT = RetryConfig(max_retries=2, initial_delay=0, jitter=False)


# --- options


def options(given: dict[str, Any] | None = None, defaults: dict[str, Any] | None = None, **request: Any) -> Any:
    return read_options(
        ChatRequest(messages=[], **request), given or {}, OptionDefaults(**{"model": "built-in", **(defaults or {})})
    )


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("model", lambda: options({"model": "a"}, {"model": "c"}, model="b")),
        ("model", lambda: options({}, {"model": "c"}, model="a")),
        ("model", lambda: options({"model": ""}, {"model": "a"}, model="")),
        ("max_output_tokens", lambda: options({"max_tokens": 2}, {"max_output_tokens": 3}, max_output_tokens=1)),
        ("max_output_tokens", lambda: options({"max_output_tokens": 1}, {"max_output_tokens": 3})),
        ("max_output_tokens", lambda: options({}, {"max_output_tokens": 1})),
        ("temperature", lambda: options({"temperature": 1.0}, {"temperature": 2.0}, temperature=0.0)),
        ("temperature", lambda: options({"temperature": 0.0}, {"temperature": 2.0})),
        ("top_p", lambda: options({}, {"top_p": 0.0})),
        ("stop", lambda: options({"stop": ["b"]}, {}, stop=["a"])),
        ("tool_choice", lambda: options({"tool_choice": "a"}, {}, tool_choice="b")),
        ("tool_choice", lambda: options({}, {}, tool_choice="a")),
        ("reasoning", lambda: options({"reasoning": "a", "reasoning_effort": "b"}, {}, reasoning_effort="c")),
        ("reasoning", lambda: options({"reasoning_effort": "a"}, {}, reasoning_effort="c")),
        ("reasoning", lambda: options({}, {"reasoning": "b"}, reasoning_effort="a")),
        ("reasoning", lambda: options({}, {"reasoning": "a"})),
        ("reasoning", lambda: options({"reasoning": "", "reasoning_effort": ""}, {}, reasoning_effort="a")),
        ("reasoning", lambda: options({}, {"reasoning": "a"}, reasoning_effort="")),
        ("tool_choice", lambda: options({"tool_choice": ""}, {}, tool_choice="a")),
        ("timeout_s", lambda: options({}, {"timeout_s": 2.0}, timeout=1.0)),
        ("timeout_s", lambda: options({}, {"timeout_s": 1.0})),
    ],
)
def test_the_first_that_sets_an_option_decides(name: str, found: Callable[[], Any]) -> None:
    assert getattr(found(), name) in ("a", ["a"], 0.0, 1, 1.0)


def test_an_option_that_nobody_sets_is_left_out() -> None:
    found = options()

    assert found.model == "built-in"
    names = ("max_output_tokens", "temperature", "top_p", "stop", "tool_choice", "reasoning", "timeout_s")
    assert [getattr(found, name) for name in names] == [None] * 7


@pytest.mark.parametrize(
    ("configured", "metadata", "expected"),
    [
        (True, None, True),
        (True, {"stream": False}, False),
        (True, {"stream": 0}, True),
        (False, {"stream": True}, False),
    ],
)
def test_streaming_is_configured_and_a_call_can_do_without(configured: bool, metadata: Any, expected: bool) -> None:
    assert options({}, {"use_streaming": configured}, metadata=metadata).streams is expected


# --- events


class Call:
    """A call and what was heard of it."""

    def __init__(self) -> None:
        self.recorder = EventRecorder()
        events = ProviderEvents(SimpleNamespace(hooks=self.recorder))
        self.call = ProviderCall(events, provider="acme", model="m1")

    @property
    def heard(self) -> list[tuple[str, Any]]:
        return self.recorder.events


async def test_a_success_tells_usage_duration_and_stop_reason() -> None:
    one = Call()
    usage = Usage(input_tokens=3, output_tokens=2, total_tokens=5, cache_read_tokens=0, cost_usd=Decimal("0.10"))
    response = ChatResponse(content=[], usage=usage, finish_reason="stop")

    async with one.call as call:
        await call.announce(4, has_system=True)
        await call.finish(response, rate_limits=None, raw=lambda: {"api_key": "x", "b": 1})

    assert one.heard[0] == ("llm:request", {"provider": "acme", "model": "m1", "message_count": 4, "has_system": True})
    name, payload = one.heard[1]
    duration_ms = payload.pop("duration_ms")
    assert (name, type(duration_ms), len(one.heard)) == ("llm:response", int, 2)
    assert payload == {
        "provider": "acme",
        "model": "m1",
        "status": "ok",
        "usage": {"input_tokens": 3, "output_tokens": 2, "cache_read_tokens": 0, "cost_usd": "0.10"},
        "stop_reason": "stop",
        "raw": {"api_key": "[REDACTED]", "b": 1},
    }


async def failing(call: ProviderCall, error: BaseException) -> None:
    async with call:
        await call.announce(1)
        raise error


async def test_a_failure_is_announced_and_goes_on() -> None:
    one = Call()

    with pytest.raises(AuthenticationError):
        await failing(one.call, AuthenticationError("", status_code=401))

    payload = one.heard[1][1]
    assert (payload["status"], payload["error"]) == ("error", "AuthenticationError")
    assert (payload["error_type"], payload["status_code"], payload["retryable"]) == ("AuthenticationError", 401, False)


async def test_a_cancellation_is_announced_and_goes_on() -> None:
    one = Call()

    with pytest.raises(asyncio.CancelledError):
        await failing(one.call, asyncio.CancelledError())

    assert one.heard[1][1]["status"] == "cancelled"


async def test_a_failure_before_the_request_is_not_announced() -> None:
    one = Call()
    with pytest.raises(ValueError, match="early"):
        async with one.call:
            raise ValueError("early")

    assert one.heard == []


def test_a_response_without_usage_used_nothing() -> None:
    assert usage_payload(ChatResponse(content=[])) == {"input_tokens": 0, "output_tokens": 0, "cost_usd": None}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, False),
        ({"raw": "yes"}, True),
        ({"debug": True}, True),
        ({"raw_debug": 1}, True),
        ({"raw": False, "debug": True}, False),
    ],
)
def test_raw_has_older_spellings(config: dict[str, Any], expected: bool) -> None:
    assert read_raw(LenientConfig("provider-x", config)) is expected


# --- retries


async def test_attempts_are_repeated_until_one_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    one, attempts = Call(), iter([RateLimitError("slow", retry_after=0.0), RateLimitError(""), "ok"])

    async def operation() -> str:
        outcome = next(attempts)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    assert await one.call.attempt(operation, NO_WAIT) == "ok"
    retries = [payload for event, payload in one.heard if event == "provider:retry"]
    assert [(retry["attempt"], retry["retry_after"], retry["error_message"]) for retry in retries] == [
        (1, 0.0, "slow"),
        (2, None, "RateLimitError"),
    ]
    assert set(retries[0]) == {
        "provider",
        "model",
        "attempt",
        "max_retries",
        "delay",
        "retry_after",
        "error_type",
        "error_message",
    }
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


async def test_an_attempt_that_takes_too_long_is_a_timeout_that_is_retried() -> None:
    one, attempts = Call(), iter([10.0, 0.0])

    async def operation() -> str:
        await asyncio.sleep(next(attempts))
        return "ok"

    assert await one.call.attempt(operation, NO_WAIT, timeout_s=0.01) == "ok"
    assert one.heard[0][1]["error_type"] == "LLMTimeoutError"
    assert "0.01 seconds" in one.heard[0][1]["error_message"]


async def test_a_timeout_of_the_operation_itself_is_left_alone() -> None:
    async def operation() -> str:
        raise TimeoutError("inner")

    with pytest.raises(TimeoutError, match="inner") as caught:
        await Call().call.attempt(operation, NO_WAIT, timeout_s=5)

    assert not isinstance(caught.value, LLMTimeoutError)


def test_retry_settings_have_their_keys_and_defaults() -> None:
    given = {"max_retries": "1", "min_retry_delay": 0.5, "max_retry_delay": 2, "retry_jitter": "off"}

    assert read_retry_config(LenientConfig("x", {})) == RetryConfig(5, 1.0, 60.0, jitter=True)
    assert read_retry_config(LenientConfig("x", given)) == RetryConfig(1, 0.5, 2.0, jitter=False)


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, None),
        ({"Retry-After": "2"}, 2.0),
        ({"retry-after": "0.5", "retry-after-ms": "9000"}, 0.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"retry-after": "soon", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after-ms": "soon"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_the_wait_a_vendor_asks_for_is_read(headers: dict[str, str], expected: float | None) -> None:
    assert parse_retry_after(headers) == expected


def test_the_wait_may_be_a_date() -> None:
    moment = datetime.now(UTC) + timedelta(hours=1)

    seconds = parse_retry_after({"retry-after": format_datetime(moment, usegmt=True)})

    assert seconds is not None
    assert 3500 < seconds <= 3600


# --- responses


def test_a_response_mirrors_its_content() -> None:
    content = [
        ThinkingBlock(thinking="hm", signature="s"),
        RedactedThinkingBlock(data="x"),
        TextBlock(text=" one"),
        ToolCallBlock(id="1", name="a", input={"x": 1}),
        TextBlock(text="two "),
    ]

    response = ProviderResponse.of(content, finish_reason="stop")

    assert [block.to_dict() for block in response.content_blocks or []] == [
        {"type": "thinking", "text": "hm"},
        {"type": "text", "text": " one"},
        {"type": "tool_call", "id": "1", "name": "a", "arguments": {"x": 1}},
        {"type": "text", "text": "two "},
    ]
    assert response.text == "one\n\ntwo"
    assert response.tool_calls == [ToolCall(id="1", name="a", arguments={"x": 1})]
    assert response.content == content


def test_an_empty_response_has_neither_mirror_nor_text_nor_calls() -> None:
    response = ProviderResponse.of([RedactedThinkingBlock(data="x")])

    assert (response.content_blocks, response.text, response.tool_calls) == (None, None, None)
    assert parse_tool_calls(response) == []
