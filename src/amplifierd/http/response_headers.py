"""The headers that every answer carries."""

from __future__ import annotations

from collections.abc import Callable

from starlette.types import Message, Send

from amplifierd.cluster.member_request import SEAL

from .asked_session import SESSION_HEADERS

HTML_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
DATA_POLICY = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""For what is not a page: opened as one, it shows what it is and does nothing."""

_OF_THE_PAGE = (b"text/html", b"text/javascript", b"text/css", b"image/svg+xml")
_ALLOWED = ("Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "X-Request-Id", *SESSION_HEADERS)
_PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (b"access-control-allow-headers", ", ".join(_ALLOWED).encode()),
    (b"access-control-max-age", b"600"),
]
_EXPOSED = b"X-Request-Id, Location, Retry-After"
_ALWAYS = [
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]


class ResponseHeaders:
    """Sends the answer to one request, and remembers its status. `origin` may read it, beside the daemon's own.

    `seal` makes the seal of an answer to another member. A request `for_headers` gets no body.
    """

    def __init__(self, send: Send, request_id: str, *, for_headers: bool = False) -> None:
        self._send, self._request_id, self._for_headers = send, request_id.encode(), for_headers
        self.origin: bytes | None = None
        self.seal: Callable[[int], str] | None = None
        self.status: int | None = None
        self.is_stream = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._own(message)]}
        elif self._for_headers:
            message = {**message, "body": b""}
        await self._send(message)

    async def preflight(self) -> None:
        """Tell a browser what the page at `origin` may send."""
        await self.send({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
        await self.send({"type": "http.response.body", "body": b""})

    def _own(self, message: Message) -> list[tuple[bytes, bytes]]:
        given = dict(message.get("headers", ()))
        self.is_stream = given.get(b"content-type", b"").startswith(b"text/event-stream")
        own = [(b"x-request-id", self._request_id), *_ALWAYS]
        if b"cache-control" not in given:
            own.append((b"cache-control", b"no-store"))
        if message["status"] != 304:  # the browser keeps the policy that it has, and would take this one for a new one
            is_of_page = given.get(b"content-type", b"").startswith(_OF_THE_PAGE)
            own.append((b"content-security-policy", (HTML_POLICY if is_of_page else DATA_POLICY).encode()))
        if self.seal is not None:
            own.append((SEAL.encode(), self.seal(message["status"]).encode()))
        if self.origin is not None:
            own += [
                (b"access-control-allow-origin", self.origin),
                (b"access-control-allow-credentials", b"true"),
                (b"access-control-expose-headers", _EXPOSED),
                (b"vary", b"Origin"),
            ]
        return own
