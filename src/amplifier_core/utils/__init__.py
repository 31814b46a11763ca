"""Helpers shared by modules: retrying model calls, shortening, redacting and serializing data."""

from .retry import RetryConfig, classify_error_message, retry_with_backoff
from .serialize import json_safe
from .truncate import SENSITIVE_KEYS, redact_secrets, truncate_values

__all__ = [
    "SENSITIVE_KEYS",
    "RetryConfig",
    "classify_error_message",
    "json_safe",
    "redact_secrets",
    "retry_with_backoff",
    "truncate_values",
]
