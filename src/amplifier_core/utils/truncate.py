"""Makes data fit for logs: long strings shortened, secrets blanked. Both return copies."""

from collections.abc import Set as AbstractSet
from typing import Any

SENSITIVE_KEYS: frozenset[str] = frozenset(
    {
        "api_key",
        "apikey",
        "api-key",
        "secret",
        "password",
        "token",
        "credential",
        "credentials",
        "private_key",
        "privatekey",
        "auth",
        "authorization",
    }
)


def truncate_values(obj: Any, max_length: int = 180) -> Any:
    """Return `obj` with every string in its dicts and lists cut to `max_length` characters and marked as cut."""
    if isinstance(obj, str):
        excess = len(obj) - max_length
        return f"{obj[:max_length]}... (truncated {excess} chars)" if excess > 0 else obj
    if isinstance(obj, dict):
        return {key: truncate_values(value, max_length) for key, value in obj.items()}
    if isinstance(obj, list):
        return [truncate_values(value, max_length) for value in obj]
    return obj


def redact_secrets(obj: Any, sensitive_keys: AbstractSet[str] = SENSITIVE_KEYS) -> Any:
    """Return `obj` with the value of every sensitive key in its dicts and lists replaced by `[REDACTED]`.

    Keys match as a whole and in any case: `API_KEY` does, `max_token` does not.
    """
    if isinstance(obj, dict):
        return {
            key: "[REDACTED]"
            if isinstance(key, str) and key.lower() in sensitive_keys
            else redact_secrets(value, sensitive_keys)
            for key, value in obj.items()
        }
    if isinstance(obj, list):
        return [redact_secrets(value, sensitive_keys) for value in obj]
    return obj
