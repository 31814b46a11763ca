"""Failures of the vendor in the kernel's vocabulary, retries, and what they never tell."""

import asyncio
import importlib
import json
import logging
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from anthropic_server import MESSAGES, MODELS, AnthropicServer, failing_stream, failure, reply, text
from vendor_server import Answer, cut, hang, text_answer

from amplifier_core import LLMError, llm_errors

HTML = "<html><title>Just a moment...</title></html>"
TOO_LONG = "prompt is too long: 208310 tokens > 200000 maximum"
OVER_LIMIT = "input length and `max_tokens` exceed context limit: 189127 + 16000 > 200000"

REFUSED = [
    (failure(400, TOO_LONG), "ContextLengthError", 400, False),
    (failure(400, OVER_LIMIT), "ContextLengthError", 400, False),
    (failure(400, "Output blocked by content filter policy"), "ContentFilterError", 400, False),
    (failure(400, "bad field"), "InvalidRequestError", 400, False),
    (failure(401, "invalid x-api-key"), "AuthenticationError", 401, False),
    (failure(402, "pay"), "QuotaExceededError", 402, False),
    (failure(403, "not for you"), "AccessDeniedError", 403, False),
    (text_answer(HTML, 403, "text/html; charset=utf-8"), "ProviderUnavailableError", 403, True),
    (failure(404, "no such model"), "NotFoundError", 404, False),
    (failure(408, "too slow"), "LLMTimeoutError", 408, False),
    (failure(413, "too large"), "ContextLengthError", 413, False),
    (failure(418, "teapot"), "LLMError", 418, False),
    (failure(422, "odd"), "InvalidRequestError", 422, False),
    (failure(429, "slow down"), "RateLimitError", 429, True),
    (failure(429, "spent", kind="billing_error"), "QuotaExceededError", 429, False),
    (failure(500, "oops"), "ProviderUnavailableError", 500, True),
    (failure(503, "busy"), "ProviderUnavailableError", 503, True),
    (failure(529, "Overloaded"), "ProviderUnavailableError", 529, True),
    (failure(500, "Overloaded", kind="overloaded_error"), "ProviderUnavailableError", 529, True),
    (failing_stream("overloaded_error", "Overloaded"), "ProviderUnavailableError", 529, True),
    (failing_stream("overloaded_error", "Overloaded", text("Hi")), "ProviderUnavailableError", 529, True),
    (failing_stream("rate_limit_error", "slow", text("Hi")), "RateLimitError", 429, True),
    (failing_stream("invalid_request_error", TOO_LONG), "ContextLengthError", 400, False),
    (failing_stream("timeout_error", "slow"), "ProviderUnavailableError", 504, True),
    (failing_stream("api_error", "oops"), "ProviderUnavailableError", 200, True),
    (failing_stream("new_error", "oops"), "ProviderUnavailableError", 200, True),
    (cut(), "NetworkError", None, True),
]


@pytest.mark.parametrize(("answer", "name", "status", "retryable"), REFUSED)
async def test_every_failure_has_its_class_and_is_retried_only_if_that_may_help(
    desk: Any, answer: Answer, name: str, status: int | None, retryable: bool
) -> None:
    one = desk(max_retries=2)
    one.server.always = answer

    with pytest.raises(LLMError) as caught:
        await one.ask("Hi")

    error = caught.value
    assert (type(error).__name__, error.status_code, error.retryable) == (name, status, retryable)
    assert (error.provider, error.model) == ("anthropic", "claude-sonnet-5")
    assert error.__cause__ is not None
    assert str(error)
    assert len(one.server.bodies) == (3 if retryable else 1)
    (told,) = one.heard("llm:response")
    assert (told["status"], told["error_type"], told["status_code"]) == ("error", name, status)
    assert (told["retryable"], told["error"]) == (retryable, str(error))


async def test_a_refused_connection_is_a_network_error_that_names_its_cause(desk: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    one = desk(max_retries=1, base_url=f"http://ada:secret@127.0.0.1:{port}")

    with pytest.raises(llm_errors.NetworkError, match="ConnectError") as caught:
        await one.ask("Hi")

    assert caught.value.retryable
    assert len(one.names("provider:retry")) == 1
    assert "secret" not in str(caught.value)


async def test_the_body_of_the_vendor_is_the_text_of_the_error(desk: Any) -> None:
    one = desk()
    one.server.script(MESSAGES, failure(404, "no such model", details={"error_code": "model_unknown"}))

    with pytest.raises(llm_errors.NotFoundError) as caught:
        await one.ask("Hi")

    body = json.loads(str(caught.value))
    assert body["error"] == {
        "type": "not_found_error",
        "message": "no such model",
        "details": {"error_code": "model_unknown"},
    }


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"retry-after": "0.5", "retry-after-ms": "9000"}, 0.5),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
@pytest.mark.parametrize("status", [429, 503, 529])
async def test_the_wait_that_the_vendor_asks_for_is_carried(
    desk: Any, status: int, headers: dict[str, str], seconds: float | None
) -> None:
    one = desk(max_retries=0)
    one.server.script(MESSAGES, failure(status, "wait", headers))

    with pytest.raises(LLMError) as caught:
        await one.ask("Hi")

    assert caught.value.retry_after == seconds


async def test_the_wait_may_be_a_date(desk: Any) -> None:
    one = desk(max_retries=0)
    moment = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    one.server.script(MESSAGES, failure(429, "wait", {"retry-after": moment}))

    with pytest.raises(llm_errors.RateLimitError) as caught:
        await one.ask("Hi")

    assert 3500 < (caught.value.retry_after or 0) <= 3600


async def test_two_refusals_and_a_success_are_one_call_with_two_retries(
    desk: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk(max_retries=2)
    one.server.script(MESSAGES, failure(429, "slow"), failure(429, "slow"), reply(text("At last.")))

    response = await one.ask("Hi")

    assert response.text == "At last."
    assert (len(one.names("provider:retry")), len(one.names("llm:request")), len(one.names("llm:response"))) == (
        2,
        1,
        1,
    )
    first = one.heard("provider:retry")[0]
    assert set(first) == {
        *("provider", "model", "attempt", "max_retries", "delay", "retry_after", "error_type", "error_message"),
    }
    assert [told["attempt"] for told in one.heard("provider:retry")] == [1, 2]
    assert one.heard("llm:response")[0]["status"] == "ok"
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 2


async def test_a_retry_never_comes_before_the_vendors_wait_is_over(desk: Any) -> None:
    one = desk(max_retries=1, max_retry_delay=0.01, retry_jitter=True)
    one.server.script(MESSAGES, failure(429, "wait", {"retry-after-ms": "60"}))
    started = asyncio.get_running_loop().time()

    await one.ask("Hi")

    (told,) = one.heard("provider:retry")
    assert told["delay"] == told["retry_after"] == 0.06
    assert asyncio.get_running_loop().time() - started >= 0.06


async def test_the_delay_doubles_and_an_overloaded_vendor_gets_ten_times_as_much(desk: Any) -> None:
    one = desk(max_retries=4, min_retry_delay=0.002)
    one.server.script(MESSAGES, failure(500), failure(529), failing_stream("overloaded_error", "x"), failure(500))

    await one.ask("Hi")

    delays = [told["delay"] for told in one.heard("provider:retry")]
    assert delays == pytest.approx([0.002, 0.04, 0.08, 0.016])


async def test_a_challenge_of_a_proxy_is_announced(desk: Any) -> None:
    one = desk(max_retries=1)
    one.server.script(MESSAGES, text_answer(HTML, 403, "text/html"))

    await one.ask("Hi")

    (told,) = one.heard("provider:cloudflare_challenge")
    assert set(told) == {
        *("provider", "model", "active_requests", "waiting_requests", "max_concurrent", "process_id", "timestamp"),
    }


async def test_two_instances_share_their_places_so_the_vendor_never_sees_more_at_once(desk: Any) -> None:
    one, other = desk(max_concurrent_requests=2), desk(max_concurrent_requests=2)
    one.server.always = reply(text("Hello"), delay=0.005)

    await asyncio.gather(*(each.ask("Hi") for each in (one, other) for _ in range(3)))

    assert (one.server.max_in_flight, len(one.server.bodies)) == (2, 6)
    told = one.heard("provider:concurrency") + other.heard("provider:concurrency")
    assert max(payload["active_requests"] for payload in told) == 2


async def test_a_place_is_free_while_waiting_for_the_next_attempt(desk: Any) -> None:
    one, other = desk(max_concurrent_requests=1, max_retries=1), desk(max_concurrent_requests=1)
    one.server.script(MESSAGES, failure(429, "wait", {"retry-after": "0.3"}))
    slow = asyncio.create_task(one.ask("Hi"))
    await one.server.until(lambda: one.names("provider:retry"))

    await other.ask("Hi")
    was_waiting = not slow.done()
    await slow

    assert was_waiting


async def test_the_key_stands_in_no_log_no_event_and_no_error(desk: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    one = desk(max_retries=1, raw=True)
    key = one.server.key
    one.server.script(MESSAGES, failure(500, f"the key {key} broke us"), failure(401, f"invalid x-api-key {key}"))

    with pytest.raises(llm_errors.AuthenticationError) as caught:
        await one.ask("Hi")
    await one.ask("Hi")
    await one.provider.list_models()

    assert "[REDACTED]" in str(caught.value)
    assert key not in str(caught.value) + repr(caught.value)
    assert key not in repr(caught.value.__cause__)
    assert key not in json.dumps(one.recorder.events, default=str)
    assert key not in caplog.text
    assert caplog.records


async def test_listing_models_fails_like_any_call(desk: Any) -> None:
    one = desk(max_retries=1)
    one.server.script(MODELS, failure(503, "busy"), failure(401, "who?"))

    with pytest.raises(llm_errors.AuthenticationError):
        await one.provider.list_models()

    assert len(one.server.asked(MODELS)) == 2
    assert len(one.names("provider:retry")) == 1


async def test_building_the_client_takes_no_time_of_the_first_attempt(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    anthropic = importlib.import_module("anthropic")
    build = anthropic.AsyncAnthropic

    def build_slowly(**options: Any) -> Any:
        time.sleep(0.4)
        return build(**options)

    monkeypatch.setattr(anthropic, "AsyncAnthropic", build_slowly)
    one = desk(max_retries=0, timeout=0.3)
    one.server.script(MESSAGES, hang())

    with pytest.raises(llm_errors.LLMTimeoutError):
        await one.ask()

    assert len(one.server.bodies) == 1


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_is_not_followed_so_that_nobody_else_gets_the_key(desk: Any, status: int) -> None:
    with AnthropicServer() as other:
        one = desk(max_retries=0)
        one.server.script(MESSAGES, Answer(status=status, headers={"location": f"{other.url}/v1/messages"}))

        with pytest.raises(llm_errors.ProviderUnavailableError) as caught:
            await one.ask()

        assert (caught.value.status_code, caught.value.retryable) == (status, True)
        assert other.requests == []


PATIENT = {"first_byte_timeout": 60, "silence_timeout": 60, "timeout": 60, "min_retry_delay": 0}


@pytest.mark.parametrize(
    ("limit", "outcome", "reason"),
    [
        ("first_byte_timeout", hang(), "no answer had begun after 0.2 seconds (first_byte_timeout)"),
        ("silence_timeout", reply(text("Hello there"), hang_after=4), "silent for 0.2 seconds (silence_timeout)"),
        ("timeout", reply(text("Hello there"), hang_after=4), "no answer within 0.2 seconds (timeout)"),
    ],
)
async def test_each_silence_of_the_vendor_has_a_limit_of_its_own(
    desk: Any, limit: str, outcome: Any, reason: str
) -> None:
    one = desk(**PATIENT | {limit: 0.2})
    await one.ask("Hi")  # the client is there
    one.server.script(MESSAGES, outcome)

    assert (await one.ask("Hi")).text

    (retry,) = one.heard("provider:retry")
    assert (retry["error_type"], reason in retry["error_message"]) == ("LLMTimeoutError", True), retry


async def test_a_vendor_that_stalls_again_and_again_is_left_after_three_attempts(desk: Any) -> None:
    one = desk(**PATIENT | {"silence_timeout": 0.1, "max_retries": 5})
    one.server.script(MESSAGES, *[reply(text("Hello there"), hang_after=4)] * 6)

    with pytest.raises(llm_errors.LLMTimeoutError, match="silent") as caught:
        await one.ask("Hi")

    assert (len(one.server.bodies), caught.value.retryable) == (3, True)


async def test_an_answer_that_is_not_streamed_may_begin_late(desk: Any) -> None:
    one = desk(**PATIENT | {"first_byte_timeout": 0.01})

    assert (await one.ask("Hi", metadata={"stream": False})).text
