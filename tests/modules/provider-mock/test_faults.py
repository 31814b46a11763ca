"""Errors on demand: every class, at the calls that were chosen, retried and announced like real ones."""

from typing import Any

import pytest

from amplifier_core import LLMError, llm_errors

CLASSES = [kind for kind in vars(llm_errors).values() if isinstance(kind, type) and issubclass(kind, LLMError)]
SHORT_NAMES = {
    "timeout": (llm_errors.LLMTimeoutError, None),
    "rate_limit": (llm_errors.RateLimitError, 429),
    "overloaded": (llm_errors.ProviderUnavailableError, 529),
    "stream": (llm_errors.StreamError, None),
    "auth": (llm_errors.AuthenticationError, 401),
    "context_length": (llm_errors.ContextLengthError, 400),
}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
async def test_every_class_of_the_taxonomy_can_be_raised(desk: Any, kind: type[LLMError]) -> None:
    fault = {"call": 1, "type": kind.__name__, "message": "planned", "status_code": 418, "retry_after": 3}
    one = desk({"errors": [fault]})

    with pytest.raises(kind, match="planned") as caught:
        await one.ask("Hello")

    error = caught.value
    assert type(error) is kind
    assert (error.provider, error.model, error.status_code, error.retry_after) == ("mock", "mock-model", 418, 3.0)
    announced = one.heard("llm:response")[0][1]
    assert announced == {
        "provider": "mock",
        "model": "mock-model",
        "status": "error",
        "duration_ms": 0,
        "error": "planned",
        "error_type": kind.__name__,
        "status_code": 418,
        "retryable": kind.retryable,
    }


@pytest.mark.parametrize("name", SHORT_NAMES)
async def test_short_names_stand_for_classes_and_status_codes(desk: Any, name: str) -> None:
    kind, status_code = SHORT_NAMES[name]

    with pytest.raises(kind) as caught:
        await desk({"errors": [{"type": name}]}).ask("Hello")

    assert caught.value.status_code == status_code
    assert str(caught.value)


async def test_a_rate_limit_that_is_retried_gives_one_retry_event_and_then_success(desk: Any) -> None:
    one = desk({"responses": ["ok"], "errors": [{"call": 1, "type": "rate_limit", "retry_after": 0}], "max_retries": 1})

    assert await one.text() == "ok"
    (retry,) = one.heard("provider:retry")
    assert retry[1] == {
        "provider": "mock",
        "model": "mock-model",
        "attempt": 1,
        "max_retries": 1,
        "delay": 0.0,
        "retry_after": 0.0,
        "error_type": "RateLimitError",
        "error_message": "mock error: rate_limit",
    }
    assert (one.names("llm:request"), one.names("llm:response")) == (["llm:request"], ["llm:response"])


async def outcomes(one: Any, count: int) -> str:
    """Return one letter for each call: `.` for an answer, `x` for an error."""
    letters = ""
    for _ in range(count):
        try:
            await one.ask("Hello")
            letters += "."
        except LLMError:
            letters += "x"
    return letters


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ({}, "xxxxxx"),
        ({"call": 3}, "..x..."),
        ({"every": 2}, ".x.x.x"),
        ({"every": 2, "times": 2}, ".x.x.."),
        ({"times": 2}, "xx...."),
        ({"when": {"call": 4}}, "...x.."),
        ({"when": {"contains": "nothing"}}, "......"),
    ],
)
async def test_faults_happen_at_the_calls_they_name(desk: Any, fault: dict[str, Any], expected: str) -> None:
    assert await outcomes(desk({"errors": [{"type": "auth", **fault}]}), 6) == expected


@pytest.mark.parametrize(("times", "expected"), [(None, "."), (2, "."), (3, "x")])
async def test_a_fault_fails_the_first_attempt_or_as_many_as_it_says(
    desk: Any, times: int | None, expected: str
) -> None:
    one = desk({"errors": [{"call": 1, "type": "timeout", "times": times}], "max_retries": 2})

    assert await outcomes(one, 1) == expected


async def test_an_error_that_is_not_retryable_is_not_retried(desk: Any) -> None:
    one = desk({"errors": [{"type": "auth"}], "max_retries": 3})

    assert await outcomes(one, 1) == "x"
    assert one.names("provider:retry") == []


async def test_an_error_in_the_middle_of_a_stream_aborts_it(desk: Any) -> None:
    fault = {"type": "stream", "after_deltas": 2, "message": "cut"}
    one = desk({"responses": [{"thinking": "a", "text": "b c d"}], "errors": [fault], "max_retries": 1})

    await one.ask("Hello")

    stream = [event.removeprefix("llm:stream_") for event in one.names("llm:stream_")]
    first = ["block_start", "block_delta", "block_end", "block_start", "block_delta", "block_end", "aborted"]
    assert stream[:7] == first
    assert stream[7:].count("block_delta") == 4
    assert one.heard("llm:stream_aborted")[0][1] == {"error": {"type": "StreamError", "msg": "cut"}}
    ids = {data["request_id"] for event, data in one.events if event.startswith("llm:stream_")}
    assert len(ids) == 2


async def test_without_streaming_such_an_error_comes_before_the_answer(desk: Any) -> None:
    one = desk({"errors": [{"type": "stream", "after_deltas": 2}], "use_streaming": False})

    assert await outcomes(one, 1) == "x"
    assert one.names("llm:stream_") == []


async def test_an_answer_can_be_an_error(desk: Any) -> None:
    one = desk({"responses": ["ok", {"error": {"type": "rate_limit", "retry_after": 2}}]})

    assert await outcomes(one, 3) == ".x."


@pytest.mark.parametrize(
    "fault", ["auth", {"type": "nonsense"}, {"type": "auth", "cal": 1}, {"type": "auth", "every": 0}, {"call": 1}]
)
async def test_a_fault_that_does_not_fit_is_reported_and_left_out(
    desk: Any, fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    one = desk({"errors": [fault, {"call": 2, "type": "auth"}]})

    assert await outcomes(one, 2) == ".x"
    assert [record for record in caplog.records if "'errors'" in record.message and record.levelname == "WARNING"]
