"""The headers of a request as one mapping, each name once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from amplifierd.exceptions import RequestRefusedError

MAX_BYTES = 32 * 1024
_SINGLE = frozenset(
    {
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"authorization",
        b"cookie",
        b"content-type",
        b"content-length",
        b"x-authenticated-user",
        b"x-forwarded-proto",
        b"x-amplifier-channel",
        b"x-amplifier-caller",
    }
)
"""Headers that decide something: a second one would let two readers see two requests."""


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by their names in lower case; those that may come twice are joined with commas.

    Raises:
        RequestRefusedError: they are too large, or one comes twice that must not.
    """
    headers: dict[bytes, bytes] = {}
    size = 0
    for name, value in raw:
        size += len(name) + len(value)
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE:
            raise RequestRefusedError(f"the header {name.decode('latin-1')} is there twice", code="malformed-request")
        else:
            headers[name] = headers[name] + b", " + value
    if size > MAX_BYTES:
        raise RequestRefusedError(f"the headers have more than {MAX_BYTES} bytes", code="headers-too-large")
    return headers


def wants_html(headers: Mapping[bytes, bytes]) -> bool:
    """Say whether the answer is shown in a browser."""
    return b"text/html" in headers.get(b"accept", b"").lower()
