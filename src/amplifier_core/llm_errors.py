"""What goes wrong in a call of a language model, in one vocabulary for all vendors.

    LLMError
    ├── RateLimitError              wait, then try again          retryable
    │   └── QuotaExceededError        the account is used up
    ├── AuthenticationError         wrong or missing credentials
    │   └── AccessDeniedError         right credentials, not allowed
    ├── ContextLengthError          the request is too long for the model
    ├── ContentFilterError          refused by a safety filter
    ├── InvalidRequestError         the vendor cannot read the request
    ├── NotFoundError               no such model or address
    ├── ProviderUnavailableError    the vendor is down            retryable
    │   └── NetworkError              the vendor cannot be reached  retryable
    ├── LLMTimeoutError             no answer in time             retryable
    ├── StreamError                 the answer broke off          retryable
    ├── AbortError                  the caller gave up
    ├── InvalidToolCallError        the model's call of a tool cannot be read
    └── ConfigurationError          the provider is set up wrongly

Providers translate a vendor's errors into these; `utils.retry` acts on `retryable`, `retry_after` and
`delay_multiplier`.
"""

from typing import Any


class LLMError(Exception):
    """Base class: catch this to handle any failed model call.

    `retryable` on the class is the default of its instances.
    """

    retryable: bool = False

    def __init__(
        self,
        message: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        status_code: int | None = None,
        retryable: bool | None = None,
        retry_after: float | None = None,
        delay_multiplier: float = 1.0,
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.model = model
        self.status_code = status_code
        self.retryable = type(self).retryable if retryable is None else retryable
        self.retry_after = retry_after
        self.delay_multiplier = delay_multiplier

    def __repr__(self) -> str:
        parts = [repr(str(self))]
        parts += [f"{k}={v!r}" for k in ("provider", "model", "status_code") if (v := getattr(self, k)) is not None]
        if self.retryable:
            parts.append("retryable=True")
        if self.retry_after is not None:
            parts.append(f"retry_after={self.retry_after!r}")
        if self.delay_multiplier != 1.0:
            parts.append(f"delay_multiplier={self.delay_multiplier!r}")
        return f"{type(self).__name__}({', '.join(parts)})"


class RateLimitError(LLMError):
    """Too many requests; `retry_after` holds the vendor's wish in seconds, if it named one."""

    retryable = True


class QuotaExceededError(RateLimitError):
    """The account's quota or credit is used up; waiting does not help."""

    retryable = False


class AuthenticationError(LLMError):
    """The credentials are wrong or missing."""


class AccessDeniedError(AuthenticationError):
    """The credentials are right but do not allow this."""


class ContextLengthError(LLMError):
    """The request is longer than the model's context window."""


class ContentFilterError(LLMError):
    """A safety filter refused the request or the answer."""


class InvalidRequestError(LLMError):
    """The vendor rejects the form of the request."""


class NotFoundError(LLMError):
    """The model or the address does not exist."""


class ProviderUnavailableError(LLMError):
    """The vendor's service is down or overloaded."""

    retryable = True


class NetworkError(ProviderUnavailableError):
    """The vendor's service cannot be reached."""


class LLMTimeoutError(LLMError):
    """The answer did not arrive in time."""

    retryable = True


class StreamError(LLMError):
    """A streamed answer broke off."""

    retryable = True


class AbortError(LLMError):
    """The caller gave the request up."""


class InvalidToolCallError(LLMError):
    """The model called a tool in a form that cannot be read; it is kept in `raw_arguments`."""

    def __init__(
        self, message: str, *, tool_name: str | None = None, raw_arguments: str | None = None, **details: Any
    ) -> None:
        super().__init__(message, **details)
        self.tool_name = tool_name
        self.raw_arguments = raw_arguments


class ConfigurationError(LLMError):
    """The provider is not set up correctly."""
