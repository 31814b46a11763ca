"""A model vendor's server on loopback: real HTTP, scripted answers and faults, and a record of what was asked.

A vendor's stand-in derives from `VendorServer`, says what it refuses in `refusal()` and what it answers when nothing is
scripted in `answer()`. The server runs in a thread of its own, so a client that blocks its event loop, or uses several,
is served all the same::

    with VendorServer() as server:
        server.script("POST /v1/messages", json_answer({"error": "slow down"}, 429, {"retry-after": "2"}), hang())
        ...  # a client talks to server.url
        await server.until(lambda: server.requests[1].disconnected)
"""

import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, urlsplit

_PATIENCE_S = 5.0


@dataclass(eq=False)
class Request:
    """One request as it arrived; `disconnected` tells that the client left before the answer was complete."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]  # names in lower case
    content: bytes
    disconnected: bool = False
    answered: bool = False

    @property
    def endpoint(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def body(self) -> Any:
        """Return the JSON that was sent, `None` for nothing."""
        return json.loads(self.content) if self.content else None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the server sends for one request, and what happens to the connection after that.

    `delay` seconds pass before each piece. After the pieces the answer ends as it should, the connection is cut without
    an end, or nothing more comes while the connection stays open.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[bytes] = ()
    delay: float = 0.0
    then: Literal["end", "cut", "hang"] = "end"


Outcome = Answer | Callable[[Request], Answer]


def json_answer(
    body: Any, status: int = 200, headers: Mapping[str, str] | None = None, *, delay: float = 0.0
) -> Answer:
    """Answer with a JSON document; an error is one with its status."""
    content = json.dumps(body, ensure_ascii=False).encode()
    return Answer(
        status=status, headers={"content-type": "application/json", **(headers or {})}, pieces=[content], delay=delay
    )


def text_answer(text: str, status: int, content_type: str = "text/plain", **headers: str) -> Answer:
    """Answer with what no API would send: a proxy's page, or plain text."""
    return Answer(status=status, headers={"content-type": content_type, **headers}, pieces=[text.encode()])


def hang() -> Answer:
    """Accept the request and never answer it, not even with headers."""
    return Answer(then="hang")


def cut() -> Answer:
    """Accept the request and drop the connection without a byte."""
    return Answer(then="cut")


def sse_frame(data: Any, event: str | None = None, *, newline: str = "\n") -> bytes:
    """Return one event of a stream; text is sent as it is, anything else as one line of JSON."""
    line = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    named = f"event: {event}{newline}" if event else ""
    return f"{named}data: {line}{newline}{newline}".encode()


def sse_answer(
    events: Iterable[tuple[str | None, Any]],
    *,
    headers: Mapping[str, str] | None = None,
    delay: float = 0.0,
    cut_after: int | None = None,
    hang_after: int | None = None,
    newline: str = "\n",
    comments: bool = False,
    piece_bytes: int | None = None,
) -> Answer:
    """Answer with a stream of `(event name or None, data)`.

    `cut_after` and `hang_after` send so many events and then cut the connection or fall silent; `comments` puts a
    keep-alive line before each event; `piece_bytes` sends pieces of that size whatever they tear apart.
    """
    listed = list(events)
    kept = next((count for count in (cut_after, hang_after) if count is not None), len(listed))
    comment = f": keep-alive{newline}{newline}".encode() if comments else b""
    pieces = [comment + sse_frame(data, event, newline=newline) for event, data in listed[:kept]]
    if piece_bytes:
        whole = b"".join(pieces)
        pieces = [whole[start : start + piece_bytes] for start in range(0, len(whole), piece_bytes)]
    return Answer(
        headers={"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", **(headers or {})},
        pieces=pieces,
        delay=delay,
        then="cut" if cut_after is not None else "hang" if hang_after is not None else "end",
    )


class VendorServer:
    """An HTTP/1.1 server on an ephemeral port of 127.0.0.1, started on entry and gone on exit."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.in_flight = 0
        self.max_in_flight = 0
        self.url = ""
        self._scripts: dict[str, deque[Outcome]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="vendor-server", daemon=True)
        self._connections: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    # What a vendor's stand-in says.

    def refusal(self, request: Request) -> Answer | None:
        """Return what a request is refused with before anything scripted happens, `None` if it is in order."""
        return None

    def answer(self, request: Request) -> Answer:
        """Return what an endpoint answers when its script is used up."""
        return json_answer({"error": f"nothing is scripted for {request.endpoint}"}, 404)

    def common_headers(self, request: Request) -> Mapping[str, str]:
        """Return the headers that every answer carries."""
        return {}

    # What a test says and asks.

    def script(self, endpoint: str, *outcomes: Outcome) -> None:
        """Queue outcomes for an endpoint like `POST /v1/messages`; each accepted request takes the next one."""
        self._scripts.setdefault(endpoint, deque()).extend(outcomes)

    def asked(self, endpoint: str) -> list[Request]:
        """Return the requests to one endpoint, in the order of their arrival."""
        return [request for request in self.requests if request.endpoint == endpoint]

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until a condition holds, and fail when it does not in time."""
        deadline = time.monotonic() + _PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, "the server did not see what the test waits for"
            await asyncio.sleep(0.005)

    def __enter__(self) -> Self:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> int:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, limit=2**24)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.sleep(0)  # the transports close

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            await self._serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client left, or the server is being stopped
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        next_byte = asyncio.ensure_future(reader.read(1))
        try:
            while first := await next_byte:
                request = await _read_request(first, reader)
                next_byte = asyncio.ensure_future(reader.read(1))
                await self._handle(request, writer, next_byte)
        finally:
            next_byte.cancel()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await next_byte

    async def _handle(self, request: Request, writer: asyncio.StreamWriter, next_byte: asyncio.Future[bytes]) -> None:
        """Answer one request while watching for the client to leave."""
        self.requests.append(request)
        self.in_flight += 1
        self.max_in_flight = max(self.max_in_flight, self.in_flight)
        sending = asyncio.ensure_future(self._send(request, writer))
        try:
            watched: set[asyncio.Future[Any]] = {sending, next_byte}
            await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
            request.disconnected = not sending.done()
            if sending.done():
                await sending
        finally:
            self.in_flight -= 1
            sending.cancel()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await sending

    async def _send(self, request: Request, writer: asyncio.StreamWriter) -> None:
        answer = self._outcome_of(request)
        if answer.pieces:
            await self._send_body(request, answer, writer)
        elif answer.then == "end":
            headers = {**self.common_headers(request), **answer.headers, "content-length": "0"}
            writer.write(_head(answer.status, headers))
            await writer.drain()
        if answer.then == "hang":
            await asyncio.Event().wait()
        request.answered = answer.then == "end"
        if answer.then == "cut":
            writer.transport.abort()
            raise ConnectionAbortedError("the script cuts the connection")

    async def _send_body(self, request: Request, answer: Answer, writer: asyncio.StreamWriter) -> None:
        headers = {**self.common_headers(request), **answer.headers, "transfer-encoding": "chunked"}
        for position, piece in enumerate(answer.pieces):
            await asyncio.sleep(answer.delay)
            head = _head(answer.status, headers) if position == 0 else b""
            writer.write(head + f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
        if answer.then == "end":
            writer.write(b"0\r\n\r\n")
            await writer.drain()

    def _outcome_of(self, request: Request) -> Answer:
        if refused := self.refusal(request):
            return refused
        queue = self._scripts.get(request.endpoint)
        outcome: Outcome = queue.popleft() if queue else self.answer
        return outcome if isinstance(outcome, Answer) else outcome(request)


def _head(status: int, headers: Mapping[str, str]) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = "Unassigned"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode()


async def _read_request(first: bytes, reader: asyncio.StreamReader) -> Request:
    head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    start, *lines = head.strip().split("\r\n")
    method, target, _ = start.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", "0")))
    url = urlsplit(target)
    return Request(method=method, path=url.path, query=dict(parse_qsl(url.query)), headers=headers, content=content)
