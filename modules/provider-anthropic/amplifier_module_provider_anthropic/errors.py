"""What the vendor's client raises, in the kernel's vocabulary."""

from collections.abc import Callable, Mapping
from typing import Any

from amplifier_core import LLMError
from amplifier_core.llm_errors import ProviderUnavailableError
from amplifier_kit.providers.errors import ErrorTranslator, VendorFailure, describe, hide_key

from .settings import AnthropicSettings

_STATUS_BY_TYPE = {  # of errors inside a stream, whose own status says that all is well
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class Errors:
    """Translates exceptions; the key never stands in what it returns."""

    def __init__(self, provider: str, settings: AnthropicSettings, *, get_key: Callable[[], str | None]) -> None:
        self._get_key, self._limits = get_key, settings.limits
        self._translator = ErrorTranslator(provider, settings.server, settings.overloaded_delay_multiplier)

    def translate(
        self,
        error: Exception,
        *,
        model: str,
        timeout_s: float | None,
        has_begun: bool = False,
        has_answered: bool = False,
    ) -> LLMError:
        """Return the kernel's error; `has_begun` says that part of a streamed answer had arrived.

        `has_answered` says that the headers of the answer were there.
        """
        translated = self._translate(error, model, timeout_s, has_begun, has_answered)
        hide_key(error, self._get_key())
        hide_key(translated, self._get_key())
        return translated

    def broke_off(self, reason: str, *, model: str) -> LLMError:
        """Return the error for a stream that ended too early."""
        return self._translator.broke_off(reason, model=model)

    def _translate(
        self, error: Exception, model: str, timeout_s: float | None, has_begun: bool, has_answered: bool
    ) -> LLMError:
        status = getattr(error, "status_code", None)
        if isinstance(status, int):
            return self._translator.translate(_failure(error, status), model=model)
        kinds = _kinds(error)
        if isinstance(error, TimeoutError):
            text = f"no answer within {timeout_s:g} seconds (timeout)" if timeout_s is not None else describe(error)
            return self._translator.timed_out(text, model=model)
        if kinds & _TIMEOUTS:
            text = self._limits.exceeded(kinds, has_answered=has_answered)
            if "ConnectTimeout" in kinds:
                return self._translator.unreachable(TimeoutError(text), model=model)
            return self._translator.timed_out(text, model=model)
        if has_begun:
            return self._translator.broke_off(describe(error, with_cause=True), model=model)
        if kinds & _CONNECTION:
            return self._translator.unreachable(error, model=model)
        return self._translator.unexpected(error, model=model)


def is_challenge(error: LLMError) -> bool:
    """Say whether a proxy in front of the vendor answered instead of it."""
    return isinstance(error, ProviderUnavailableError) and error.status_code == 403


# Names of the vendor's client and of the HTTP library below it, which differs between versions of the client.
_TIMEOUTS = frozenset({"APITimeoutError", "TimeoutException"})
_CONNECTION = frozenset({"APIConnectionError", "TransportError"})


def _kinds(error: BaseException) -> set[str]:
    """Return the names of an exception's classes, and of those of its cause."""
    return {kind.__name__ for one in (error, error.__cause__) if one is not None for kind in type(one).__mro__}


def _failure(error: Exception, status: int) -> VendorFailure:
    body = getattr(error, "body", None)
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    if status < 400:
        status = _STATUS_BY_TYPE.get(_error_type(body), status)
    return VendorFailure(status, body=body, text=str(error), headers=dict(headers))


def _error_type(body: Any) -> str:
    inner = body.get("error") if isinstance(body, Mapping) else None
    return str(inner.get("type")) if isinstance(inner, Mapping) else ""
