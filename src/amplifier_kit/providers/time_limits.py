"""How long a vendor may take: to accept a connection, until its answer begins, and between two pieces of it.

The whole attempt has a limit of its own, `timeout`, which holds whatever the server does.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from amplifier_kit.lenient_config import LenientConfig

_NOT_CONNECTED = frozenset({"ConnectTimeout", "PoolTimeout"})  # as the HTTP libraries below the vendors' clients say it


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Seconds for the parts of an attempt."""

    connect_s: float
    first_byte_s: float
    silence_s: float

    @classmethod
    def read(cls, config: LenientConfig, *, first_byte_s: float, silence_s: float) -> "TimeLimits":
        """Read the keys `connect_timeout`, `first_byte_timeout` and `silence_timeout`; the rest are defaults."""
        return cls(
            connect_s=config.number("connect_timeout", 5.0, above=0),
            first_byte_s=config.number("first_byte_timeout", first_byte_s, above=0),
            silence_s=config.number("silence_timeout", silence_s, above=0),
        )

    def for_client(self, sdk: Any, whole_s: float | None, *, streams: bool = True) -> Any:
        """Return the limits as a vendor's client takes them.

        An answer that is not streamed begins when it is complete: only the whole attempt limits that.
        """
        return sdk.Timeout(whole_s, connect=self.connect_s, read=self.first_byte_s if streams else whole_s)

    def begin_silence(self, response: Any) -> None:
        """Let an answer that has begun be read with the limit for silence instead of that for its first byte."""
        extensions = getattr(getattr(response, "request", None), "extensions", None) or {}
        if isinstance(limits := extensions.get("timeout"), dict):  # looked at when the body begins to be read
            limits["read"] = self.silence_s

    def exceeded(self, kinds: Collection[str], *, has_answered: bool) -> str:
        """Return which limit an exception of these classes is about, with its seconds and its key."""
        if _NOT_CONNECTED.intersection(kinds):
            return f"no connection within {self.connect_s:g} seconds (connect_timeout)"
        if has_answered:
            return f"the stream was silent for {self.silence_s:g} seconds (silence_timeout)"
        return f"no answer had begun after {self.first_byte_s:g} seconds (first_byte_timeout)"
