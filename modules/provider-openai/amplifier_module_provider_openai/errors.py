"""What the vendor's client raises, and what a stream says went wrong, as the kernel's errors."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from amplifier_core import LLMError
from amplifier_core.llm_errors import ContentFilterError, RateLimitError, StreamError
from amplifier_core.utils import json_safe
from amplifier_kit.providers.errors import ErrorTranslator, VendorFailure, describe, hide_key, is_secret

from .settings import OpenAISettings

_OVERFLOW = (  # how servers of local models say it
    "exceeds the available context size",
    "context size",
    "n_ctx",
    "maximum model length",
    "input is too long",
)
_TIMEOUTS = frozenset({"APITimeoutError", "TimeoutException"})  # of the client, and of the HTTP library below it
_IMPLIED_STATUS = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "requests": 429,
    "tokens": 429,
    "insufficient_quota": 429,
    "invalid_prompt": 400,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_api_key": 401,
    "model_not_found": 404,
}


class OpenAIErrors:
    """Translates for one provider. What `get_key` returns never appears in an error's text."""

    def __init__(
        self,
        provider: str,
        settings: OpenAISettings,
        *,
        get_key: Callable[[], str | None],
    ) -> None:
        self._translator = ErrorTranslator(provider, settings.server, settings.overloaded_delay_multiplier, _OVERFLOW)
        self._provider = provider
        self._get_key, self._limits = get_key, settings.limits
        self._max_delay_s = settings.retry.max_delay

    def translate(
        self, error: Exception, sdk: Any, *, model: str, has_begun: bool, has_answered: bool = False
    ) -> LLMError:
        """Return the error for what the client raised, before or after the first event of a stream.

        `has_answered` says that the headers of the answer were there.
        """
        hide_key(error, self._get_key())
        if isinstance(error, sdk.APIStatusError):
            return self._refused(failure_of(error), model)
        kinds = {kind.__name__ for one in (error, error.__cause__) if one is not None for kind in type(one).__mro__}
        if kinds & _TIMEOUTS:
            text = self._limits.exceeded(kinds, has_answered=has_answered)
            if "ConnectTimeout" in kinds:
                return self._translator.unreachable(TimeoutError(text), model=model)
            return self._translator.timed_out(text, model=model)
        if isinstance(error, sdk.APIConnectionError):
            if has_begun:
                return self._translator.broke_off(describe(error, with_cause=True), model=model)
            return self._translator.unreachable(error, model=model)
        if isinstance(error, sdk.APIError):
            return self.in_stream(error.body or {"message": error.message}, model=model)
        if isinstance(error, json.JSONDecodeError) and has_begun:
            return self._translator.broke_off(describe(error), model=model)
        return self._translator.unexpected(error, model=model)

    def unreachable(self, error: Exception, *, model: str) -> LLMError:
        """Return the error for a connection that ended before its answer did."""
        return self._translator.unreachable(error, model=model)

    def in_stream(self, given: Any, *, model: str, status: int = 200) -> LLMError:
        """Return the error for one that is reported in the body of an answer with a successful status."""
        body = self._scrub(given if isinstance(given, Mapping) else {"message": str(given)})
        codes = [str(body[key]) for key in ("code", "type") if body.get(key)]
        failure = VendorFailure(next(filter(None, map(_status_of, codes)), status), body)
        if any("policy" in code for code in codes):
            return ContentFilterError(failure.message, provider=self._provider, model=model, status_code=failure.status)
        return self._limited(self._translator.translate(failure, model=model))

    def broke_off(self, reason: str, *, model: str) -> StreamError:
        """Return the error for a stream that ended too early."""
        return self._translator.broke_off(reason, model=model)

    def _refused(self, failure: VendorFailure, model: str) -> LLMError:
        scrubbed = VendorFailure(failure.status, self._scrub(failure.body), self._scrub(failure.text), failure.headers)
        return self._limited(self._translator.translate(scrubbed, model=model))

    def _limited(self, error: LLMError) -> LLMError:
        """Give up at once on a rate limit that lasts too long to wait for."""
        if isinstance(error, RateLimitError) and (error.retry_after or 0) > self._max_delay_s:
            error.retryable = False
        return error

    def _scrub(self, value: Any) -> Any:
        key = self._get_key()
        if not is_secret(key) or not value:
            return value
        text = json.dumps(json_safe(value), ensure_ascii=False)
        written = json.dumps(key, ensure_ascii=False)[1:-1]
        return json.loads(text.replace(written, "[REDACTED]")) if written in text else value


def failure_of(error: Any) -> VendorFailure:
    """Return the answer that a client's status error stands for; a body that is not JSON counts as text."""
    body = error.body if isinstance(error.body, Mapping | list) else None
    text = error.body if isinstance(error.body, str) and error.body else str(error)
    return VendorFailure(error.status_code, body, text, dict(error.response.headers))


def refusal_of(error: LLMError) -> VendorFailure | None:
    """Return the vendor's answer behind a kernel error, None when there was none."""
    cause = error.__cause__
    return failure_of(cause) if hasattr(cause, "status_code") and hasattr(cause, "response") else None


def message_of(failure: VendorFailure) -> str:
    """Return what the vendor says in words, without the frame around it."""
    body = failure.body
    if isinstance(body, Mapping) and isinstance(body.get("message"), str):
        return str(body["message"])
    return failure.message if body else failure.text


def _status_of(code: str) -> int | None:
    if code.isdigit() and int(code) >= 400:
        return int(code)
    return 400 if "image" in code and "policy" not in code else _IMPLIED_STATUS.get(code)
