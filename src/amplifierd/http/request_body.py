"""The body of a request: of a type that is read here, and of a bounded size."""

from __future__ import annotations

import re
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive

from amplifierd.exceptions import RequestRefusedError

MAX_BYTES = 10 * 1024 * 1024

_JSON = re.compile(rb"application/(?:[\w.-]+\+)?json(?:\s*;.*)?", re.IGNORECASE)
_OPAQUE = b"application/octet-stream"
"""Taken as it is by endpoints that ask for a file; a page of another site cannot send it unasked."""

_TOO_LARGE = f"the body has more than {MAX_BYTES} bytes"


def check_body(headers: Mapping[bytes, bytes]) -> None:
    """Look at what a request says about its body.

    Raises:
        RequestRefusedError: it is too large, or neither JSON nor a file.
    """
    length = headers.get(b"content-length")
    if length is not None and not (length.isdigit() and len(length) < 20):
        raise RequestRefusedError("content-length is not a number", code="malformed-request")
    has_body = b"transfer-encoding" in headers or (length is not None and int(length) > 0)
    if not has_body:
        return
    if length is not None and int(length) > MAX_BYTES:
        raise RequestRefusedError(_TOO_LARGE, code="payload-too-large")
    kind = headers.get(b"content-type", b"")
    if not _JSON.fullmatch(kind) and kind.lower() != _OPAQUE:
        raise RequestRefusedError("only application/json is read", code="unsupported-media-type")


def bounded(receive: Receive) -> Receive:
    """Return a `receive` that ends a request whose body turns out to be too large."""
    received = 0

    async def receive_bounded() -> Message:
        nonlocal received
        message = await receive()
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            if received > MAX_BYTES:
                raise HTTPException(413, _TOO_LARGE)
        return message

    return receive_bounded
