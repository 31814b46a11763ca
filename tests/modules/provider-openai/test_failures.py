"""Everything that can go wrong between the provider and its server, and what is done about it."""

import asyncio
import importlib
import logging
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import pytest
from openai_chat import chat_stream
from openai_server import CHAT, KEY, RESPONSES, OpenAIServer, Said, failed, text_answer
from vendor_server import Answer, cut, hang, json_answer, sse_answer

from amplifier_core.llm_errors import (
    AccessDeniedError,
    AuthenticationError,
    ConfigurationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    LLMTimeoutError,
    NetworkError,
    NotFoundError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
    StreamError,
)

REFUSED = [
    (failed(400, "context_length_exceeded"), ContextLengthError, False),
    (failed(400, None, "This model's maximum context length is 8192 tokens."), ContextLengthError, False),
    (failed(400, None, "the request exceeds the available context size"), ContextLengthError, False),
    (failed(400, "content_policy_violation"), ContentFilterError, False),
    (failed(400, None, "Something else."), InvalidRequestError, False),
    (failed(401, "invalid_api_key"), AuthenticationError, False),
    (failed(402, "billing_error"), QuotaExceededError, False),
    (failed(403, "unsupported_country_region_territory"), AccessDeniedError, False),
    (text_answer("<html>Just a moment...</html>", 403, "text/html"), ProviderUnavailableError, True),
    (failed(404, "model_not_found"), NotFoundError, False),
    (failed(408), LLMTimeoutError, False),
    (failed(409), LLMError, False),
    (failed(413), ContextLengthError, False),
    (failed(422), InvalidRequestError, False),
    (failed(429, "rate_limit_exceeded"), RateLimitError, True),
    (failed(429, "insufficient_quota", kind="insufficient_quota"), QuotaExceededError, False),
    (failed(500, None, kind="server_error"), ProviderUnavailableError, True),
    (failed(503, None, kind="server_error"), ProviderUnavailableError, True),
    (failed(529, "overloaded"), ProviderUnavailableError, True),
    (json_answer({"error": "model 'x' not found"}, 404), NotFoundError, False),
    (json_answer({"detail": "prompt is too long"}, 400), ContextLengthError, False),
    (json_answer({"object": "error", "message": "n_ctx", "type": "BadRequestError"}, 400), ContextLengthError, False),
    (text_answer("upstream is away", 502), ProviderUnavailableError, True),
]


def number_of(answer: Any) -> str:
    return f"{answer.status}-{answer.pieces[0][:60].decode()}" if isinstance(answer, Answer) else ""


@pytest.mark.parametrize(("answer", "kind", "is_retried"), REFUSED, ids=number_of)
async def test_every_refusal_has_its_class_and_is_repeated_only_if_that_may_help(
    desks: Any, api: str, endpoint: str, answer: Answer, kind: type[LLMError], is_retried: bool
) -> None:
    desk = desks({"api": api, "max_retries": 1})
    desk.server.script(endpoint, answer, answer)

    with pytest.raises(LLMError) as caught:
        await desk.ask()

    error = caught.value
    assert type(error) is kind
    assert (error.status_code, error.retryable) == (answer.status, is_retried)
    assert (error.provider, error.model) == ("openai", "gpt-5.5")
    assert error.__cause__ is not None
    assert len(desk.bodies) == (2 if is_retried else 1)
    (told,) = desk.payloads("llm:response")
    assert (told["status"], told["error_type"], told["status_code"]) == ("error", kind.__name__, answer.status)
    assert told["error"]


async def test_an_error_says_what_the_vendor_said(desk: Any, endpoint: str) -> None:
    desk.server.script(endpoint, failed(400, "bad", "No such thing."))

    with pytest.raises(InvalidRequestError, match=r'"message": "No such thing\."'):
        await desk.ask()


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("rate_limit_exceeded", RateLimitError),
        ("insufficient_quota", QuotaExceededError),
        ("server_error", ProviderUnavailableError),
        ("invalid_prompt", InvalidRequestError),
        ("invalid_image_format", InvalidRequestError),
        ("image_content_policy_violation", ContentFilterError),
        ("bio_policy", ContentFilterError),
        ("context_length_exceeded", ContextLengthError),
        ("nobody_knows", ProviderUnavailableError),
    ],
)
@pytest.mark.parametrize("way", ["failed", "error", "document"])
async def test_every_error_inside_a_response_has_its_class(desks: Any, code: str, kind: Any, way: str) -> None:
    desk = desks({"api": "responses", "max_retries": 0})
    error = {"code": code, "message": "It failed."}
    response = {"id": "resp_1", "status": "failed", "error": error, "output": [], "usage": None}
    answers = {
        "failed": sse_answer([("response.failed", {"type": "response.failed", "response": response})]),
        "error": sse_answer([("error", {"type": "error", **error, "param": None, "sequence_number": 0})]),
        "document": json_answer(response),
    }
    desk.server.script(RESPONSES, answers[way])

    with pytest.raises(LLMError) as caught:
        await desk.ask()

    assert type(caught.value) is kind


async def test_a_failed_attempt_that_reports_its_usage_is_counted(desks: Any) -> None:
    desk = desks({"api": "responses", "rates": {"gpt-5.5": {"input_per_m": 1, "output_per_m": 1}}})
    usage = {"input_tokens": 1_000_000, "output_tokens": 0}
    response = {"id": "resp_1", "status": "failed", "error": {"code": "server_error"}, "output": [], "usage": usage}
    desk.server.script(RESPONSES, sse_answer([("response.failed", {"type": "response.failed", "response": response})]))

    answer = await desk.ask()

    assert desk.costs == [1, answer.usage.cost_usd]


@pytest.mark.parametrize(
    ("error", "kind", "status"),
    [
        ({"message": "It failed.", "code": 500}, ProviderUnavailableError, 500),
        ({"message": "Slow down.", "code": "rate_limit_exceeded"}, RateLimitError, 429),
        ({"message": "n_ctx", "code": 400}, ContextLengthError, 400),
        ("It failed.", ProviderUnavailableError, 200),
    ],
)
async def test_an_error_chunk_of_a_chat_stream_is_like_an_http_error(
    desks: Any, error: Any, kind: Any, status: int
) -> None:
    desk = desks({"api": "chat", "max_retries": 0})
    chunks = chat_stream({"content": "Hi"}, finish=None, done=False)
    desk.server.script(CHAT, sse_answer([*chunks, (None, {"error": error})]))

    with pytest.raises(LLMError) as caught:
        await desk.ask()

    assert (type(caught.value), caught.value.status_code) == (kind, status)
    (aborted,) = desk.payloads("llm:stream_aborted")
    assert aborted["error"]["msg"]


# --- retries


async def test_a_rate_limit_is_waited_out_and_told(desks: Any, api: str, endpoint: str) -> None:
    desk = desks({"api": api, "max_retries": 2})
    desk.server.script(endpoint, *[failed(429, "rate_limit_exceeded")] * 2)

    response = await desk.ask()

    assert response.text == "Hello"
    retries = desk.payloads("provider:retry")
    assert [(retry["attempt"], retry["error_type"]) for retry in retries] == [
        (1, "RateLimitError"),
        (2, "RateLimitError"),
    ]
    assert set(retries[0]) == {
        "provider", "model", "attempt", "max_retries", "delay", "retry_after", "error_type", "error_message",
    }  # fmt: skip
    assert len(desk.names("llm:request")) == len(desk.names("llm:response")) == 1
    assert len(desk.names("provider:concurrency")) == 3


@pytest.mark.parametrize("status", [429, 503])
@pytest.mark.parametrize(
    "headers",
    [{"retry_after": "0.05"}, {"retry_after_ms": "50"}, {"retry_after": "soon", "x_ms_retry_after_ms": "50"}],
    ids=["seconds", "milliseconds", "unreadable"],
)
async def test_the_wait_that_a_server_asks_for_is_never_undercut(
    desks: Any, api: str, endpoint: str, status: int, headers: dict[str, str]
) -> None:
    desk = desks({"api": api, "retry_jitter": True})
    desk.server.script(endpoint, failed(status, **headers))

    await desk.ask()

    (retry,) = desk.payloads("provider:retry")
    assert retry["retry_after"] == 0.05
    assert retry["delay"] >= 0.05


async def test_a_wait_until_a_date_is_understood(desks: Any, api: str, endpoint: str) -> None:
    desk = desks({"api": api, "max_retry_delay": 10})
    date = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    desk.server.script(endpoint, failed(429, retry_after=date))

    with pytest.raises(RateLimitError) as caught:
        await desk.ask()

    assert 3500 < (caught.value.retry_after or 0) <= 3600


async def test_a_rate_limit_that_lasts_too_long_is_given_up_at_once(desks: Any, api: str, endpoint: str) -> None:
    desk = desks({"api": api, "max_retry_delay": 10})
    desk.server.script(endpoint, failed(429, retry_after="11"))

    with pytest.raises(RateLimitError) as caught:
        await desk.ask()

    assert (caught.value.retryable, caught.value.retry_after, len(desk.bodies)) == (False, 11.0, 1)


async def test_an_overloaded_server_is_given_more_time(desks: Any, api: str, endpoint: str) -> None:
    desk = desks({"api": api, "min_retry_delay": 0.01, "overloaded_delay_multiplier": 3})
    desk.server.script(endpoint, failed(529))

    await desk.ask()

    assert desk.payloads("provider:retry")[0]["delay"] == pytest.approx(0.03)


# --- connections


async def test_a_closed_port_is_a_network_error_and_tried_again(desks: Any, api: str) -> None:
    with OpenAIServer() as gone:
        url = gone.base_url
    desk = desks({"api": api, "base_url": url, "max_retries": 1})

    with pytest.raises(NetworkError) as caught:
        await desk.ask()

    assert caught.value.retryable
    assert len(desk.payloads("provider:retry")) == 1


async def test_a_connection_that_ends_without_an_answer_is_a_network_error(desk: Any, endpoint: str) -> None:
    desk.server.script(endpoint, cut())

    assert (await desk.ask()).text == "Hello"
    assert desk.payloads("provider:retry")[0]["error_type"] == "NetworkError"


async def test_a_stream_that_is_cut_is_told_and_begun_anew(desk: Any) -> None:
    desk.server.say(Said("one two three four five six seven", stream={"cut_after": 7}), "all of it")

    response = await desk.ask()

    assert response.text == "all of it"
    assert desk.payloads("provider:retry")[0]["error_type"] == "StreamError"
    (aborted,) = desk.payloads("llm:stream_aborted")
    assert aborted["error"]["type"] == "APIConnectionError"
    ids = {data["request_id"] for name, data in desk.events if name.startswith("llm:stream")}
    assert len(ids) == 2


async def test_a_stream_that_ends_too_early_is_an_error(desks: Any, api: str, endpoint: str) -> None:
    desk = desks({"api": api, "max_retries": 0})
    desk.server.script(endpoint, sse_answer([(None, {"type": "response.created", "response": {}, "choices": []})]))

    with pytest.raises(StreamError):
        await desk.ask()


async def test_a_document_that_is_cut_is_a_network_error(desk: Any, endpoint: str) -> None:
    torn = Answer(headers={"content-type": "application/json"}, pieces=[b'{"id"'], then="cut")
    desk.server.script(endpoint, torn)

    assert (await desk.ask(metadata={"stream": False})).text == "Hello"
    assert desk.payloads("provider:retry")[0]["error_type"] == "NetworkError"


async def test_an_answer_that_takes_too_long_times_out_and_is_tried_again(desks: Any, api: str, endpoint: str) -> None:
    desk = desks({"api": api, "max_retries": 1, "timeout": 0.1})
    desk.server.script(endpoint, hang(), hang())

    with pytest.raises(LLMTimeoutError, match=r"0\.1 seconds"):
        await desk.ask()

    assert len(desk.payloads("provider:retry")) == 1
    await desk.server.until(lambda: all(request.disconnected for request in desk.server.requests))


async def test_building_the_client_takes_no_time_of_the_first_attempt(
    desks: Any, api: str, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai = importlib.import_module("openai")
    build = openai.AsyncOpenAI

    def build_slowly(**options: Any) -> Any:
        time.sleep(0.4)
        return build(**options)

    monkeypatch.setattr(openai, "AsyncOpenAI", build_slowly)
    desk = desks({"api": api, "max_retries": 0, "timeout": 0.3})
    desk.server.script(endpoint, hang())

    with pytest.raises(LLMTimeoutError):
        await desk.ask()

    assert len(desk.bodies) == 1


async def test_the_timeout_of_a_request_wins_and_holds_in_the_middle_of_a_stream(desk: Any) -> None:
    desk.server.say(Said("one two three four five six seven", stream={"hang_after": 7}))

    response = await desk.ask(timeout=0.2)

    assert response.text == "Hello"
    assert desk.payloads("provider:retry")[0]["error_type"] == "LLMTimeoutError"
    assert [data["error"]["type"] for data in desk.payloads("llm:stream_aborted")] == ["TimeoutError"]


async def test_cancelling_a_call_closes_the_connection_and_says_so(desk: Any) -> None:
    desk.server.say(Said("one two three four five six seven", stream={"hang_after": 7}))
    call = asyncio.create_task(desk.ask())
    await desk.server.until(lambda: desk.names("llm:stream_block_delta"))

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call

    await desk.server.until(lambda: desk.server.requests[0].disconnected)
    assert desk.payloads("llm:stream_aborted")[0]["error"]["type"] == "CancelledError"
    assert [data["status"] for data in desk.payloads("llm:response")] == ["cancelled"]


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_is_not_followed(desks: Any, api: str, endpoint: str, status: int) -> None:
    with OpenAIServer() as other:
        desk = desks({"api": api, "max_retries": 0})
        desk.server.script(endpoint, Answer(status=status, headers={"location": other.base_url}))

        with pytest.raises(ProviderUnavailableError) as caught:
            await desk.ask()

        assert (caught.value.status_code, caught.value.retryable) == (status, True)
        assert other.requests == []


async def test_an_answer_without_content_is_told_with_its_status(desks: Any, api: str, endpoint: str) -> None:
    desk = desks({"api": api, "max_retries": 0})
    desk.server.script(endpoint, Answer(status=202))

    with pytest.raises(ProviderUnavailableError) as caught:
        await desk.ask()

    assert caught.value.status_code == 202


async def test_one_connection_serves_many_calls(desk: Any) -> None:
    for _ in range(3):
        await desk.ask()

    assert desk.server.connection_count == 1


async def test_two_instances_with_one_limit_share_it(desks: Any, api: str) -> None:
    both = [desks({"api": api, "max_concurrent_requests": 2}) for _ in range(2)]
    slow = Said("Hi", stream={"delay": 0.002})
    both[0].server.say(*[slow] * 6)

    await asyncio.gather(*(desk.ask() for desk in both * 3))

    assert both[0].server.max_in_flight == 2
    states = [data for desk in both for data in desk.payloads("provider:concurrency")]
    assert len(states) == 6
    assert max(data["active_requests"] for data in states) == 2


async def test_waiting_for_a_place_is_not_counted_as_time_of_the_attempt(desks: Any, api: str) -> None:
    desk = desks({"api": api, "max_concurrent_requests": 1, "timeout": 1.5, "max_retries": 0})
    desk.server.say(*[Said("one two three", stream={"delay": 0.06})] * 4)

    responses = await asyncio.gather(*(desk.ask() for _ in range(4)))

    assert [response.text for response in responses] == ["one two three"] * 4
    assert desk.server.max_in_flight == 1


async def test_closing_returns_in_time_while_the_server_hangs(desks: Any, api: str, endpoint: str) -> None:
    desk = desks({"api": api, "close_timeout": 0.2, "max_retries": 0})
    desk.server.script(endpoint, hang())
    call = asyncio.create_task(desk.ask())
    await desk.server.until(lambda: desk.bodies)

    await asyncio.wait_for(desk.provider.close(), 30)

    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    assert (await desk.ask()).text == "Hello", "after close it starts afresh"


# --- secrets


async def test_the_key_is_in_no_log_event_or_error(
    desks: Any, api: str, endpoint: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    desk = desks({"api": api, "raw": True, "max_retries": 1})
    desk.server.script(endpoint, failed(500, None, f"crashed with {KEY}"), failed(401, None, f"wrong key {KEY}"))

    with pytest.raises(AuthenticationError) as caught:
        await desk.ask()
    await desk.ask()

    assert "[REDACTED]" in str(caught.value)
    assert KEY not in f"{caught.value!r} {caught.value.__cause__!r} {desk.events!r} {caplog.text}"
    assert KEY in str(desk.server.requests[0].headers), "and yet it was sent"


async def test_credentials_in_the_address_are_in_no_error_or_event(desks: Any, api: str) -> None:
    with OpenAIServer() as gone:
        url = gone.base_url.replace("//", "//ann:secret@")
    desk = desks({"api": api, "base_url": url, "max_retries": 0})

    with pytest.raises(NetworkError) as caught:
        await desk.ask()

    assert "secret" not in f"{caught.value} {desk.events!r}"


@pytest.mark.parametrize(
    ("config", "problem"), [({"base_url": "", "api_key": ""}, "no API key"), ({"base_url": "local/v1"}, "base_url")]
)
async def test_a_call_without_key_or_address_says_what_to_set(desks: Any, config: Any, problem: str) -> None:
    desk = desks(config)

    with pytest.raises(ConfigurationError, match=problem):
        await desk.ask()
    with pytest.raises(ConfigurationError, match=problem):
        await desk.provider.list_models()


@pytest.mark.parametrize(
    "output",
    [
        [{"type": "message", "content": [7]}],
        [{"type": "message", "content": [{"type": "output_text", "text": 7}]}],
        [{"type": ["message"]}],
        [{"type": "reasoning", "summary": [{"text": 7}]}],
        7,
    ],
    ids=["part", "text", "type", "summary", "output"],
)
async def test_an_answer_that_makes_no_sense_is_asked_for_again(desks: Any, output: Any) -> None:
    desk = desks({"api": "responses", "use_streaming": False, "max_retries": 1})
    usage = {"input_tokens": 1000, "output_tokens": 0}
    response = {"id": "resp_1", "status": "completed", "model": "gpt-5.5", "output": output, "usage": usage}
    senseless = json_answer(response)
    desk.server.script(RESPONSES, senseless, senseless)

    with pytest.raises(LLMError) as caught:
        await desk.ask()

    assert (type(caught.value), caught.value.retryable, len(desk.bodies)) == (LLMError, True, 2)
    assert len(desk.names("provider:retry")) == 1
    assert len(desk.costs) == 2


@pytest.mark.parametrize("odd", [7, "some", [1], True])
async def test_a_usage_or_a_model_that_makes_no_sense_is_not_reported(desks: Any, api: str, odd: Any) -> None:
    desk = desks({"api": api, "use_streaming": False})
    usage = {"prompt_tokens": 9, "prompt_tokens_details": odd, "completion_tokens_details": odd}
    message = {"role": "assistant", "content": "Hi"}
    desk.server.script(
        CHAT, json_answer({"model": [odd], "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage})
    )
    item = {"type": "message", "content": [{"type": "output_text", "text": "Hi"}]}
    usage = {"input_tokens": 9, "input_tokens_details": odd, "output_tokens_details": odd}
    desk.server.script(
        RESPONSES, json_answer({"id": "r", "status": "completed", "model": [odd], "output": [item], "usage": usage})
    )

    response = await desk.ask()

    assert (response.text, response.usage.input_tokens, response.usage.cache_read_tokens) == ("Hi", 9, None)


PATIENT = {"first_byte_timeout": 60, "silence_timeout": 60, "timeout": 60, "min_retry_delay": 0}
STALLED = Said("one two three four five six seven", stream={"hang_after": 7})


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("first_byte_timeout", "no answer had begun after 0.2 seconds (first_byte_timeout)"),
        ("silence_timeout", "silent for 0.2 seconds (silence_timeout)"),
        ("timeout", "no answer within 0.2 seconds"),
    ],
)
async def test_each_silence_of_the_server_has_a_limit_of_its_own(
    desks: Any, api: str, endpoint: str, limit: str, reason: str
) -> None:
    desk = desks({"api": api, **PATIENT, limit: 0.2})
    await desk.ask()  # the client is there
    if limit == "first_byte_timeout":
        desk.server.script(endpoint, hang())
    else:
        desk.server.say(STALLED)

    assert (await desk.ask()).text == "Hello"

    (retry,) = desk.payloads("provider:retry")
    assert (retry["error_type"], reason in retry["error_message"]) == ("LLMTimeoutError", True), retry


async def test_a_server_that_stalls_again_and_again_is_left_after_three_attempts(desks: Any, api: str) -> None:
    desk = desks({"api": api, **PATIENT, "silence_timeout": 0.1, "max_retries": 5})
    for _ in range(6):
        desk.server.say(STALLED)

    with pytest.raises(LLMTimeoutError, match="silent") as caught:
        await desk.ask()

    assert (len(desk.bodies), caught.value.retryable) == (3, True)
