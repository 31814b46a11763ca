"""A request of one member to another on the wire: which headers it has, and what of it is sealed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

CHANNEL = "x-amplifier-channel"
"""The channel of a request, its number, the hash of its body and its seal, with spaces between them."""

CALLER = "x-amplifier-caller"
"""Whom the sender let in, and for whom it asks."""

RESUMED = "x-amplifier-resumed"
"""What members of the version before send with a stream that goes on; it is sealed, and says nothing here."""

SEAL = "x-amplifier-seal"
"""The seal of an answer."""

HELLO = "/cluster/hello"
"""Where a channel is opened."""

PASSED_ON = frozenset(
    {
        *("accept", "content-type", "idempotency-key", "last-event-id", "x-request-id"),
        *("x-amplifier-session", "x-session-id", "x-client-session-id"),
    }
)
"""The headers of a client that its request keeps; how the client proved who it is stays with who let it in."""

_SEALED = PASSED_ON | {CALLER, RESUMED}


def sealed_headers(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those headers that belong to what is sealed."""
    return [(name, value) for name, value in headers if name in _SEALED]


def passed_on(headers: Mapping[bytes, bytes]) -> list[tuple[str, str]]:
    """Return what the request of a client keeps when it is sent on."""
    known = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers.items())
    return [(name, value) for name, value in known if name in PASSED_ON]
