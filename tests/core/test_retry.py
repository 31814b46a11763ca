"""Calling a model again."""

import asyncio
import dataclasses
import math
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amplifier_core import utils
from amplifier_core.llm_errors import (
    AccessDeniedError,
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    NotFoundError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
)
from amplifier_core.utils.retry import RetryConfig, classify_error_message, compute_delay, retry_with_backoff

AT_ONCE = RetryConfig(initial_delay=0.0)
STEADY = RetryConfig(jitter=False)


def failing(*errors: BaseException) -> tuple[Callable[[], Awaitable[str]], list[BaseException]]:
    """Return an operation that raises `errors`, then succeeds, and the list of what it raised so far."""
    raised, waiting = list[BaseException](), list(errors)

    async def operation() -> str:
        if waiting:
            raised.append(waiting.pop(0))
            raise raised[-1]
        return "answer"

    return operation, raised


def test_the_helpers_are_offered_by_the_package() -> None:
    assert utils.RetryConfig is RetryConfig
    assert utils.retry_with_backoff is retry_with_backoff
    assert utils.classify_error_message is classify_error_message


def test_the_configuration_has_defaults_and_a_positional_order() -> None:
    assert dataclasses.astuple(RetryConfig()) == (3, 1.0, 60.0, 2.0, 0.2, True)
    assert dataclasses.astuple(RetryConfig(5, 0.1, 2.0, 3.0, False, False)) == (5, 0.1, 2.0, 3.0, 0.0, False)


@pytest.mark.parametrize(
    ("given_value", "read"), [(True, 0.2), (None, 0.2), (0.2, 0.2), (1, 0.2), (False, 0.0), (0, 0.0), (0.0, 0.0)]
)
def test_jitter_counts_by_its_truth(given_value: Any, read: float) -> None:
    config = RetryConfig(jitter=given_value)

    assert config.jitter == read
    assert dataclasses.replace(config, max_retries=1).jitter == read


@pytest.mark.parametrize("name", [field.name for field in dataclasses.fields(RetryConfig)])
def test_the_configuration_is_read_only(name: str) -> None:
    with pytest.raises(AttributeError):
        setattr(RetryConfig(), name, 1)


def test_a_negative_number_of_retries_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        RetryConfig(max_retries=-1)


@pytest.mark.parametrize("retries", ["3", 2.0, None])
def test_a_number_of_retries_is_an_int(retries: Any) -> None:
    with pytest.raises(TypeError, match="max_retries"):
        RetryConfig(max_retries=retries)


def test_delays_grow_up_to_the_cap() -> None:
    assert [compute_delay(STEADY, attempt) for attempt in (0, 1, 2, 5, 6, 7)] == [1.0, 2.0, 4.0, 32.0, 60.0, 60.0]


def test_even_the_hundred_thousandth_delay_is_the_cap() -> None:
    assert compute_delay(STEADY, 100_000) == 60.0


def test_a_multiplier_may_exceed_the_cap() -> None:
    assert compute_delay(STEADY, 7, delay_multiplier=10.0) == 600.0


@pytest.mark.parametrize("multiplier", [None, 0.0, -2.0, math.inf, math.nan])
def test_a_multiplier_that_makes_no_sense_is_ignored(multiplier: float | None) -> None:
    assert compute_delay(STEADY, 1, delay_multiplier=multiplier) == 2.0


def test_the_vendors_wish_is_a_floor_that_may_exceed_the_cap() -> None:
    assert compute_delay(STEADY, 0, retry_after=90.0) == 90.0
    assert compute_delay(STEADY, 3, retry_after=2.0) == 8.0


def test_the_vendors_wish_can_be_ignored() -> None:
    assert compute_delay(RetryConfig(jitter=False, honor_retry_after=False), 0, retry_after=90.0) == 1.0


@given(st.integers(0, 20), st.none() | st.floats(0, 200), st.none() | st.floats(0.1, 10))
def test_jitter_halves_or_raises_by_half_and_never_undercuts_the_vendors_wish(
    attempt: int, retry_after: float | None, multiplier: float | None
) -> None:
    steady = compute_delay(STEADY, attempt, None, multiplier)

    delay = compute_delay(RetryConfig(), attempt, retry_after, multiplier)

    floor = retry_after or 0.0
    assert max(steady * 0.5, floor) <= delay <= max(steady * 1.5, floor)


def test_jitter_spreads_delays_evenly_around_the_steady_one() -> None:
    delays = [compute_delay(RetryConfig(), 0) for _ in range(2_000)]

    assert 0.5 <= min(delays) < 0.6
    assert 1.4 < max(delays) < 1.5


async def test_an_operation_that_succeeds_is_called_once() -> None:
    operation, raised = failing()

    assert await retry_with_backoff(operation) == "answer"
    assert raised == []


async def test_retryable_errors_are_tried_again_until_the_operation_succeeds() -> None:
    operation, raised = failing(RateLimitError("1"), ProviderUnavailableError("2"), RateLimitError("3"))

    assert await retry_with_backoff(operation, AT_ONCE) == "answer"
    assert len(raised) == 3


async def test_the_error_of_the_last_attempt_is_raised_as_it_is() -> None:
    errors = [RateLimitError(str(number)) for number in range(5)]
    operation, raised = failing(*errors)

    with pytest.raises(RateLimitError) as caught:
        await retry_with_backoff(operation, AT_ONCE)

    assert caught.value is errors[3]
    assert len(raised) == 4


@pytest.mark.parametrize(
    "error", [QuotaExceededError("used up"), LLMError("no"), RateLimitError("no", retryable=False), ValueError("bug")]
)
async def test_other_errors_are_raised_at_once(error: Exception) -> None:
    operation, raised = failing(error)

    with pytest.raises(type(error)) as caught:
        await retry_with_backoff(operation, AT_ONCE)

    assert caught.value is error
    assert len(raised) == 1


async def test_cancellation_is_raised_at_once() -> None:
    operation, raised = failing(asyncio.CancelledError())

    with pytest.raises(asyncio.CancelledError):
        await retry_with_backoff(operation, AT_ONCE)

    assert len(raised) == 1


async def test_no_retries_means_one_attempt() -> None:
    operation, raised = failing(RateLimitError("1"), RateLimitError("2"))

    with pytest.raises(RateLimitError):
        await retry_with_backoff(operation, RetryConfig(max_retries=0))

    assert len(raised) == 1


async def test_the_listener_is_told_attempt_delay_and_error_before_each_wait() -> None:
    config = RetryConfig(initial_delay=0.001, max_delay=0.002, jitter=False)
    errors = [RateLimitError("1"), RateLimitError("2", retry_after=0.003), RateLimitError("3", delay_multiplier=2.0)]
    operation, raised = failing(*errors)
    told = list[tuple[int, float, LLMError]]()

    async def on_retry(attempt: int, delay: float, error: LLMError) -> None:
        assert len(raised) == attempt
        told.append((attempt, delay, error))

    await retry_with_backoff(operation, config, on_retry=on_retry)

    assert told == [(1, 0.001, errors[0]), (2, 0.003, errors[1]), (3, 0.004, errors[2])]


@pytest.mark.parametrize(
    ("message", "status_code", "error_class"),
    [
        ("", 401, AuthenticationError),
        ("", 403, AccessDeniedError),
        ("", 404, NotFoundError),
        ("", 413, ContextLengthError),
        ("", 429, RateLimitError),
        ("", 500, ProviderUnavailableError),
        ("rate limit", 529, ProviderUnavailableError),
        ("too many tokens", 429, RateLimitError),
        ("Context Length exceeded", None, ContextLengthError),
        ("too many tokens", 400, ContextLengthError),
        ("the maximum context is 8k", None, ContextLengthError),
        ("Rate limit reached", None, RateLimitError),
        ("Too Many Requests", 418, RateLimitError),
        ("authentication failed", None, AuthenticationError),
        ("no API key", None, AuthenticationError),
        ("Unauthorized", None, AuthenticationError),
        ("model not found", None, NotFoundError),
        ("content filter", None, ContentFilterError),
        ("for your safety", None, ContentFilterError),
        ("blocked", 422, ContentFilterError),
        ("rate limit on context length", None, ContextLengthError),
        ("odd", 400, InvalidRequestError),
        ("odd", 422, InvalidRequestError),
        ("odd", 418, LLMError),
        ("odd", None, LLMError),
    ],
)
def test_an_error_is_classified_by_status_then_message(
    message: str, status_code: int | None, error_class: type[LLMError]
) -> None:
    assert classify_error_message(message, status_code=status_code, provider="acme") is error_class


def test_the_names_of_before_are_deprecated() -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        config = RetryConfig(min_delay=0.5, backoff_multiplier=3.0, jitter=0.3)
        assert (config.min_delay, config.backoff_multiplier) == (config.initial_delay, config.backoff_factor)

    assert (config.initial_delay, config.backoff_factor, config.jitter) == (0.5, 3.0, 0.2)
    assert [str(each.message) for each in warned] == [
        "passing a float for jitter is deprecated, use a bool",
        "min_delay is deprecated, use initial_delay",
        "backoff_multiplier is deprecated, use backoff_factor",
        "min_delay is deprecated, use initial_delay",
        "backoff_multiplier is deprecated, use backoff_factor",
    ]
    assert {Path(each.filename) for each in warned} == {Path(__file__)}
    assert dataclasses.replace(config, max_retries=1) == RetryConfig(1, 0.5, backoff_factor=3.0)
