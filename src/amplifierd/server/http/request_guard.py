"""What every request passes first: it gets an id, is let in or refused, and is written down if it changes something."""

from __future__ import annotations

import asyncio
import logging
import re
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from amplifier_core.exceptions import AmplifierError
from amplifierd.cluster.channel import Channels
from amplifierd.cluster.member_request import SEAL
from amplifierd.exceptions import RequestRefusedError
from amplifierd.server.auth.callers import Caller
from amplifierd.server.log_files import AuditLog, logging_about
from amplifierd.server.metrics import Metrics
from amplifierd.settings import UNIX

from .authentication import STREAM, Authentication
from .cross_site import SAFE_METHODS, CrossSite
from .member_gate import MEMBER, accept, is_of_member
from .problem_answers import error_answer
from .request_body import bounded, check_body
from .request_headers import peer_of, read_headers
from .routers import API
from .session_paths import SESSION_HEADERS

MAX_OPEN_REQUESTS = 1024
"""Requests of one address that may be open at the same time, streams included."""

AUDIT_DETAILS = "audit_details"
"""Where an endpoint puts, in the state of its request, what the audit log should say beside the path."""

Headers = Mapping[bytes, bytes]

_AT_ONCE = frozenset({"/health", "/ready", f"{API}/health", f"{API}/ready"})
"""What is answered at once, whatever crowd there is."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,128}")
_REFUSALS = {
    "host-rejected": "the name by which the daemon was called is not one of its own",
    "origin-rejected": "the web page that sent this may not call the daemon",
}

logger = logging.getLogger(__name__)


class RequestGuard:
    """The outermost layer of the application. What it lets through knows its `caller`, `address` and `request_id`.

    `find_channels` returns the channels of other members to this one; None where there are no others.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        authentication: Authentication,
        cross_site: CrossSite,
        audit: AuditLog,
        metrics: Metrics,
        find_channels: Callable[[], Channels | None] = lambda: None,
    ) -> None:
        self._app, self._authentication, self._cross_site = app, authentication, cross_site
        self._audit, self._metrics, self._find_channels = audit, metrics, find_channels
        self._open: Counter[str] = Counter()
        self._entrance = Entrance()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            if scope["path"] not in _AT_ONCE:
                await self._entrance.enter()
            request_id = _request_id(scope)
            with logging_about(request_id=request_id):
                await self._serve(scope, receive, send, request_id)
        elif scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, send: Send, request_id: str) -> None:
        state = scope["state"] = dict(scope.get("state", ()))
        state["request_id"] = request_id
        _drop_trailing_slash(scope)
        for_headers = scope["method"] == "HEAD" and not STREAM.fullmatch(scope["path"])
        if for_headers:
            scope["method"] = "GET"
        answer, begun = ResponseHeaders(send, request_id, for_headers=for_headers), time.monotonic()
        try:
            headers = read_headers(scope["headers"])
            scope["scheme"] = self._authentication.scheme_of(scope, headers)
            self._check_cross_site(scope, headers)
            answer.origin = self._cross_site.allowed_origin(headers)
            if scope["method"] == "OPTIONS" and answer.origin and b"access-control-request-method" in headers:
                await answer.preflight()
                return
            receive = await self._let_in(scope, headers, receive, answer)
            check_body(headers)
            with self._counted(state["address"]):
                await self._run(scope, bounded(receive), answer)
        except AmplifierError as error:
            if answer.status is not None:
                raise  # the answer has begun: only the end of the connection can tell the client
            logger.info("%s %s was refused: %s", scope["method"], scope["path"], error.message)
            await error_answer(Request(scope), error)(scope, receive, answer.send)
        finally:
            if answer.status is not None and not answer.is_stream:
                route = getattr(scope.get("route"), "path", None)
                self._metrics.count_request(scope["method"], route, answer.status, time.monotonic() - begun)

    async def _let_in(self, scope: Scope, headers: Headers, receive: Receive, answer: ResponseHeaders) -> Receive:
        """Find out who sent a request, and return how its body is read."""
        state, channels = scope["state"], self._find_channels()
        if channels is None or not is_of_member(headers):
            state["address"] = self._authentication.address_of(scope, headers)
            state["caller"] = await self._authentication.identify(scope, headers)
            return receive
        sent = accept(channels, scope, headers)
        state["address"], state["caller"], state[MEMBER] = sent.address, sent.caller, sent.answer.sender
        answer.seal = sent.answer.seal
        return sent.checked(receive)

    async def _run(self, scope: Scope, receive: Receive, answer: ResponseHeaders) -> None:
        try:
            await self._app(scope, receive, answer.send)
        except ClientDisconnect:
            logger.info("%s %s: the client left before the request was whole", scope["method"], scope["path"])
        except Exception as error:
            logger.exception("%s %s failed", scope["method"], scope["path"])
            if answer.status is not None:
                raise  # as above
            await error_answer(Request(scope), error)(scope, receive, answer.send)
        finally:
            if scope["method"] not in SAFE_METHODS or AUDIT_DETAILS in scope["state"]:
                self._write_down(scope, answer.status)

    def _check_cross_site(self, scope: Scope, headers: Headers) -> None:
        has_address = peer_of(scope) is not None
        verdict = self._cross_site.judge(scope["method"], scope["scheme"], headers, has_address=has_address)
        if verdict != "allowed":
            raise RequestRefusedError(_REFUSALS[verdict], code=verdict)

    @contextmanager
    def _counted(self, address: str) -> Iterator[None]:
        if address != UNIX and self._open[address] >= MAX_OPEN_REQUESTS:
            raise RequestRefusedError(
                "too many requests from this address are open", code="rate-limit", retry_after=1.0
            )
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def _write_down(self, scope: Scope, status: int | None) -> None:
        state = scope["state"]
        caller: Caller | None = state["caller"]
        if caller is None:
            return
        self._audit.record(
            request_id=state["request_id"],
            caller=caller.name,
            owner=caller.owner,
            via=caller.via,
            address=state["address"],
            method=scope["method"],
            path=scope["path"],
            status=status,
            **({"details": state[AUDIT_DETAILS]} if AUDIT_DETAILS in state else {}),
        )


def _request_id(scope: Scope) -> str:
    """Return the id that the client chose, if it can be one, else a new one."""
    given = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    return given.decode() if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex


def _drop_trailing_slash(scope: Scope) -> None:
    """Let a path mean the same with and without a slash at its end."""
    if len(scope["path"]) > 1 and scope["path"].endswith("/"):
        scope["path"] = scope["path"].rstrip("/") or "/"
        scope["raw_path"] = scope.get("raw_path", b"").rstrip(b"/") or b"/"


AT_A_TIME = 4
"""How many requests begin before events, answers and health checks have their turn."""


class Entrance:
    """Lets requests in, in the order in which they came."""

    def __init__(self) -> None:
        self._entered = 0
        self._crowd: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait for one's turn, which is now unless there is a crowd."""
        loop = asyncio.get_running_loop()
        if self._entered == AT_A_TIME:
            turn = loop.create_future()
            self._crowd.append(turn)
            await turn
            return
        self._entered += 1
        if self._entered == 1:
            loop.call_soon(self._come_round, loop)

    def _come_round(self, loop: asyncio.AbstractEventLoop) -> None:
        self._entered = 0
        while self._crowd and self._entered < AT_A_TIME:
            turn = self._crowd.popleft()
            if not turn.done():  # else it is no longer awaited
                turn.set_result(None)
                self._entered += 1
        if self._entered:
            loop.call_soon(self._come_round, loop)


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
