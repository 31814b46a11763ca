"""Keeping the secrets of a server's entry out of everything the module says."""

from collections.abc import Iterable, Mapping
from typing import Any

REDACTED = "[REDACTED]"

_LEAST_CHARACTERS = 8
_SECRET_WORDS = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL", "AUTH")


class Redactor:
    """Replaces secrets in texts, and in the texts of whole structures."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        found = {secret for secret in secrets if len(secret) >= _LEAST_CHARACTERS}
        self._secrets = sorted(found, key=len, reverse=True)  # the longer one first: it may contain a shorter one

    @classmethod
    def of_variables(cls, env: Mapping[str, str]) -> "Redactor":
        """Know the values of the variables whose name says that they are secret."""
        return cls(value for name, value in env.items() if any(word in name.upper() for word in _SECRET_WORDS))

    @classmethod
    def of_headers(cls, headers: Mapping[str, str]) -> "Redactor":
        """Know the values of all headers; a token without its scheme is a secret, too."""
        return cls(secret for value in headers.values() for secret in (value, value.partition(" ")[2]))

    def text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return text

    def data(self, value: Any) -> Any:
        """Return JSON data with every text in it redacted."""
        if not self._secrets:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(key): self.data(item) for key, item in value.items()}
        return [self.data(item) for item in value] if isinstance(value, list | tuple) else value
