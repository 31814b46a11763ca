"""A vendor's failures in the kernel's vocabulary, the same for every vendor that speaks HTTP.

A provider turns what its client raises into a `VendorFailure` and raises what `translate` returns, `from` the original.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TypeGuard

from amplifier_core import LLMError
from amplifier_core.llm_errors import (
    AccessDeniedError,
    AuthenticationError,
    ContentFilterError,
    ContextLengthError,
    InvalidRequestError,
    LLMTimeoutError,
    NetworkError,
    NotFoundError,
    ProviderUnavailableError,
    QuotaExceededError,
    RateLimitError,
    StreamError,
)
from amplifier_core.utils import json_safe
from amplifier_core.utils.retry import RetryConfig
from amplifier_kit.config import LenientConfig
from amplifier_kit.types import JsonObject

OVERLOADED = 529

_LEAST_KEY_LENGTH = 8

_OVERFLOW = (
    "context length",
    "too many tokens",
    "maximum context",
    "prompt is too long",
    "exceed context limit",
    "context window",
)
_FILTERED = ("content filter", "content_filter", "safety", "blocked")
_OVERFLOW_CODES = frozenset({"context_length_exceeded"})
_FILTER_CODES = frozenset({"content_filter", "content_policy_violation"})
_QUOTA_CODES = frozenset(
    {"insufficient_quota", "billing_error", "billing_hard_limit_reached", "enforced_spend_limit_reached"}
)
_CHALLENGE = (
    "just a moment",
    "cf-browser-verification",
    "cloudflare",
    "checking if the site connection is secure",
)
_URL_CREDENTIALS = re.compile(r"(?<=://)[^\s/?#\"',:]*:[^\s/?#\"',]*@")


@dataclass(frozen=True, slots=True)
class VendorFailure:
    """What a vendor answered instead of a result: an HTTP status, perhaps a body, else some text."""

    status: int
    body: object = None
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def codes(self) -> set[str]:
        """The codes and types that the body names, at its top or inside `error`."""
        body = self.body if isinstance(self.body, Mapping) else {}
        inner = body.get("error")
        levels = (body, inner if isinstance(inner, Mapping) else {})
        return {str(level[key]) for level in levels for key in ("code", "type") if level.get(key)}

    @property
    def message(self) -> str:
        """The body as JSON when there is one, else the text; never empty, and without credentials of URLs."""
        message = json.dumps(json_safe(self.body), ensure_ascii=False) if self.has_data else self.text
        return without_credentials(message or f"HTTP {self.status}: (no message)")

    @property
    def has_data(self) -> bool:
        """True if the vendor said it as data; anything else is text from the server that answered."""
        return isinstance(self.body, Mapping | list) and bool(self.body)

    def mentions(self, phrases: tuple[str, ...]) -> bool:
        text = f"{self.message} {self.text}".lower()
        return any(phrase in text for phrase in phrases)


@dataclass(frozen=True, slots=True)
class ErrorTranslator:
    """Translates the failures of one provider, whose `server` they name.

    What the vendor says as data stays the text of the error, and a note tells provider and server. `overflow_phrases`
    are further texts that say a request is too long.
    """

    provider: str
    server: str = ""
    overloaded_delay_multiplier: float = 10.0
    overflow_phrases: tuple[str, ...] = ()

    def translate(self, failure: VendorFailure, *, model: str) -> LLMError:
        """Return the error for a vendor's answer."""
        status, kind, details = self._classify(failure)
        error = kind(
            failure.message if failure.has_data else self._masked_text(failure.message),
            provider=self.provider,
            model=model,
            status_code=status,
            retry_after=parse_retry_after(failure.headers),
            **details,
        )
        if failure.has_data and self.server:
            error.add_note(f"{self.provider} at {self.server}")
        return error

    def unreachable(self, error: BaseException, *, model: str) -> NetworkError:
        """Return the error for a vendor that could not be reached at all."""
        return NetworkError(self._masked_text(describe(error, with_cause=True)), provider=self.provider, model=model)

    def timed_out(self, reason: str, *, model: str) -> LLMTimeoutError:
        """Return the error for an answer that did not come in time."""
        return LLMTimeoutError(self._masked_text(reason), provider=self.provider, model=model)

    def broke_off(self, reason: str, *, model: str) -> StreamError:
        """Return the error for a stream that ended too early."""
        return StreamError(self._masked_text(reason), provider=self.provider, model=model)

    def unexpected(self, error: BaseException, *, model: str) -> LLMError:
        """Return the error for anything else that went wrong; it may pass."""
        return LLMError(self._masked_text(describe(error)), provider=self.provider, model=model, retryable=True)

    def _masked_text(self, reason: str) -> str:
        return at_server(self.provider, self.server, reason)

    def _classify(self, failure: VendorFailure) -> tuple[int, Callable[..., LLMError], JsonObject]:
        """Return status, class and what else differs from the class's defaults."""
        status, codes = failure.status, failure.codes
        if status == OVERLOADED or "overloaded_error" in codes:
            return OVERLOADED, ProviderUnavailableError, {"delay_multiplier": self.overloaded_delay_multiplier}
        if status == 402 or (status == 429 and codes & _QUOTA_CODES):
            return status, QuotaExceededError, {}
        if status == 400:
            return status, self._bad_request(failure, codes), {}
        if status == 403 and _is_challenge(failure):
            return status, ProviderUnavailableError, {}
        if status in _BY_STATUS:
            return status, _BY_STATUS[status], {"retryable": False} if status == 408 else {}
        if status >= 500 or status < 400:
            return status, ProviderUnavailableError, {}
        return status, LLMError, {}

    def _bad_request(self, failure: VendorFailure, codes: set[str]) -> type[LLMError]:
        if codes & _OVERFLOW_CODES or failure.mentions((*_OVERFLOW, *self.overflow_phrases)):
            return ContextLengthError
        if codes & _FILTER_CODES or failure.mentions(_FILTERED):
            return ContentFilterError
        return InvalidRequestError


_BY_STATUS: dict[int, type[LLMError]] = {
    401: AuthenticationError,
    403: AccessDeniedError,
    404: NotFoundError,
    408: LLMTimeoutError,
    413: ContextLengthError,
    422: InvalidRequestError,
    429: RateLimitError,
}


def at_server(provider: str, server: str, reason: str) -> str:
    """Return what went wrong with the provider and the server it happened at, as far as that is known."""
    return f"{provider} at {server}: {reason}" if server else reason


def describe(error: BaseException, *, with_cause: bool = False) -> str:
    """Return an exception's text, never empty and without credentials of URLs; `with_cause` adds what led to it."""
    text = str(error) or f"{type(error).__name__}: (no message)"
    cause = error.__cause__ or error.__context__
    if with_cause and cause is not None:
        text = f"{text} ({type(cause).__name__}: {cause})"
    return without_credentials(text)


def without_credentials(text: str) -> str:
    """Return a text in which no URL carries a user and a password."""
    return _URL_CREDENTIALS.sub("[REDACTED]@", text)


def hide_key(error: BaseException, key: str | None) -> None:
    """Take a key out of the text of an exception, and of what led to it, in case a server quoted it."""
    seen: BaseException | None = error
    while is_secret(key) and seen is not None:
        if key in str(seen):
            seen.args = tuple(str(argument).replace(key, "[REDACTED]") for argument in seen.args)
        seen = seen.__cause__ or seen.__context__


def is_secret(key: str | None) -> TypeGuard[str]:
    """True if a key is long enough to be one; anything shorter may be part of a word."""
    return key is not None and len(key) >= _LEAST_KEY_LENGTH


def _is_challenge(failure: VendorFailure) -> bool:
    """True if a proxy in front of the vendor answered with a page for browsers."""
    if isinstance(failure.body, Mapping | list):
        return False
    content_type = {name.lower(): value for name, value in failure.headers.items()}.get("content-type", "")
    return "text/html" in content_type or failure.mentions(_CHALLENGE)


# How a provider retries: its settings, and the wait that a vendor asks for.


_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")


def read_retry_config(
    config: LenientConfig, *, max_retries: int = 5, min_delay_s: float = 1.0, jitter: bool = True
) -> RetryConfig:
    """Read the keys `max_retries`, `min_retry_delay`, `max_retry_delay` and `retry_jitter`; the rest are defaults."""
    return RetryConfig(
        max_retries=config.integer("max_retries", max_retries, minimum=0),
        initial_delay=config.number("min_retry_delay", min_delay_s, minimum=0),
        max_delay=config.number("max_retry_delay", 60.0, minimum=0),
        jitter=config.boolean("retry_jitter", jitter),
    )


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds a vendor asks to wait: `retry-after` as seconds or date, else one of the headers in ms."""
    by_name = {name.lower(): value for name, value in headers.items()}
    given = by_name.get("retry-after")
    seconds = None if given is None else _non_negative(given)
    if seconds is None and given is not None:
        seconds = _until(given)
    if seconds is None:
        milliseconds = (_non_negative(by_name[name]) for name in _MILLISECONDS if name in by_name)
        seconds = next((value / 1000 for value in milliseconds if value is not None), None)
    return seconds


def _non_negative(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number < math.inf else None


def _until(text: str) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    seconds = (moment - datetime.now(UTC)).total_seconds()
    return seconds if seconds >= 0 else None
