"""The body of a request: of a type that is read here, and of a bounded size."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive

from amplifierd.exceptions import RequestRefusedError

MAX_BYTES = 10 * 1024 * 1024
PATIENCE_S = 300.0
"""How long a body may take to come."""

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


async def whole_body(receive: Receive) -> bytes:
    """Return the body of a request."""
    pieces, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


def replayed(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that brings a body which was read already, and then what comes."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


async def client_gone(receive: Receive) -> None:
    """Wait until the client has left."""
    while (await receive())["type"] != "http.disconnect":
        pass


def bounded(receive: Receive, *, patience_s: float = PATIENCE_S) -> Receive:
    """Return a `receive` that ends a request whose body turns out to be too large, or does not come."""
    received, is_whole = 0, False
    deadline = asyncio.get_running_loop().time() + patience_s

    async def receive_bounded() -> Message:
        nonlocal received, is_whole
        if is_whole:
            return await receive()
        try:
            async with asyncio.timeout_at(deadline):
                message = await receive()
        except TimeoutError:
            raise HTTPException(408, f"the body did not come within {patience_s:.0f} seconds") from None
        if message["type"] == "http.request":
            received += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
            if received > MAX_BYTES:
                raise HTTPException(413, _TOO_LARGE)
        return message

    return receive_bounded
