"""Calls a language model again when its error says that this may help."""

import asyncio
import math
import random
import warnings
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from amplifier_core.llm_errors import (
    AccessDeniedError,
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMError,
    NotFoundError,
    ProviderUnavailableError,
    RateLimitError,
)

T = TypeVar("T")

_JITTER = 0.2
"""What `jitter` reads where delays are spread."""

_ERROR_BY_STATUS: dict[int, type[LLMError]] = {
    401: AuthenticationError,
    403: AccessDeniedError,
    404: NotFoundError,
    413: ContextLengthError,
    429: RateLimitError,
}
_ERROR_BY_PHRASE: dict[str, type[LLMError]] = {  # the first phrase found decides
    "context length": ContextLengthError,
    "too many tokens": ContextLengthError,
    "maximum context": ContextLengthError,
    "rate limit": RateLimitError,
    "too many requests": RateLimitError,
    "authentication": AuthenticationError,
    "api key": AuthenticationError,
    "unauthorized": AuthenticationError,
    "not found": NotFoundError,
    "content filter": ContentFilterError,
    "safety": ContentFilterError,
    "blocked": ContentFilterError,
}


@dataclass(frozen=True, init=False)
class RetryConfig:
    """How often and how patiently to retry; delays are in seconds.

    `jitter` spreads the delays of concurrent callers. Give any truth value, `None` meaning on; it reads 0.2 when on
    and 0.0 when off. `min_delay` and `backoff_multiplier` are deprecated words for `initial_delay` and
    `backoff_factor`.
    """

    max_retries: int
    initial_delay: float
    max_delay: float
    backoff_factor: float
    jitter: float
    honor_retry_after: bool

    def __init__(
        self,
        max_retries: int = 3,
        initial_delay: float = 1.0,
        max_delay: float = 60.0,
        backoff_factor: float = 2.0,
        jitter: float | None = True,
        honor_retry_after: bool = True,
        *,
        min_delay: float | None = None,
        backoff_multiplier: float | None = None,
    ) -> None:
        if not isinstance(max_retries, int):
            raise TypeError(f"max_retries must be an int, got {max_retries!r}")
        if max_retries < 0:
            raise ValueError(f"max_retries must not be negative, got {max_retries!r}")
        if isinstance(jitter, float) and jitter not in (_JITTER, 0.0):  # what it reads, a copy may be given
            _deprecate("passing a float for jitter is deprecated, use a bool")
        if min_delay is not None:
            _deprecate("min_delay is deprecated, use initial_delay")
        if backoff_multiplier is not None:
            _deprecate("backoff_multiplier is deprecated, use backoff_factor")
        vars(self).update(
            max_retries=max_retries,
            initial_delay=initial_delay if min_delay is None else min_delay,
            max_delay=max_delay,
            backoff_factor=backoff_factor if backoff_multiplier is None else backoff_multiplier,
            jitter=_JITTER if jitter is None or jitter else 0.0,
            honor_retry_after=honor_retry_after,
        )

    @property
    def min_delay(self) -> float:
        _deprecate("min_delay is deprecated, use initial_delay")
        return self.initial_delay

    @property
    def backoff_multiplier(self) -> float:
        _deprecate("backoff_multiplier is deprecated, use backoff_factor")
        return self.backoff_factor


def _deprecate(message: str) -> None:
    """Warn whoever makes or reads a `RetryConfig` by the names of before."""
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def compute_delay(
    config: RetryConfig, attempt: int, retry_after: float | None = None, delay_multiplier: float | None = None
) -> float:
    """Return the seconds to wait after the failed `attempt`, counted from 0.

    The vendor's `retry_after` and a `delay_multiplier` may exceed `max_delay`; jitter never undercuts `retry_after`.
    """
    try:
        delay = min(config.initial_delay * config.backoff_factor**attempt, config.max_delay)
    except OverflowError:
        delay = config.max_delay
    if delay_multiplier is not None and 0 < delay_multiplier < math.inf:
        delay *= delay_multiplier
    if config.jitter:
        delay *= 0.5 + random.random()
    if config.honor_retry_after and retry_after is not None:
        delay = max(delay, retry_after)
    return delay


async def retry_with_backoff(
    operation: Callable[[], Awaitable[T]],
    config: RetryConfig | None = None,
    *,
    on_retry: Callable[[int, float, LLMError], Awaitable[object]] | None = None,
) -> T:
    """Await `operation()`, again after each retryable `LLMError`, up to `config.max_retries` times more.

    Every other exception, and the error of the last attempt, reaches the caller as it was raised. Before each wait
    `on_retry(attempt, delay, error)` is awaited, attempts counted from 1.
    """
    config = config or RetryConfig()
    for attempt in range(config.max_retries):
        try:
            return await operation()
        except LLMError as error:
            if not error.retryable:
                raise
            delay = compute_delay(config, attempt, error.retry_after, error.delay_multiplier)
            if on_retry is not None:
                await on_retry(attempt + 1, delay, error)
        await asyncio.sleep(delay)
    return await operation()


def classify_error_message(
    message: str, *, status_code: int | None = None, provider: str | None = None
) -> type[LLMError]:
    """Return the error class for a failed call; the rules are the same for every `provider`."""
    if status_code is not None:
        if status_code in _ERROR_BY_STATUS:
            return _ERROR_BY_STATUS[status_code]
        if status_code >= 500:
            return ProviderUnavailableError
    text = message.lower()
    for phrase, error in _ERROR_BY_PHRASE.items():
        if phrase in text:
            return error
    return InvalidRequestError if status_code in (400, 422) else LLMError
