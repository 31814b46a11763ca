"""The network between clients and members, and the way into each: the real layers of the application, without sockets.

What one end sends arrives at the other after a while, and in order. Between places that are parted it waits; where it
is lost, the connection is. A machine that dies is noticed at the other end, or is not.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

import httpx2
from fastapi import FastAPI
from starlette.datastructures import State
from starlette.types import ASGIApp, Receive, Scope, Send
from virtual_loop import OWN

from amplifierd.server.api import cluster
from amplifierd.server.api.sessions import streams, turns
from amplifierd.server.auth.callers import EVERYONE, Caller
from amplifierd.server.http.forwarding import Forwarding
from amplifierd.server.http.problem_answers import add_problem_answers
from amplifierd.server.http.request_guard import RequestGuard
from amplifierd.server.http.routers import JsonAnswer, add_routes

if TYPE_CHECKING:
    from simulated_world import Daemon, Machine, World
    from virtual_loop import Process

Headers = Iterable[tuple[bytes, bytes]]
Message = dict[str, Any]

CONNECT_S = 5.0
_SILENT = 0.25
"""How often no one hears of it that a machine is dead."""

_LOST: Message = {"type": "lost"}
_GONE: Message = {"type": "http.disconnect"}


class _End:
    """One end of a connection: what has come there, and in which process."""

    def __init__(self, place: str, context: contextvars.Context) -> None:
        self.place, self.context = place, context
        self.process: Process | None = context.get(OWN)
        self.arrives_at = 0.0
        self.under_way: deque[Message] = deque()
        self._come: deque[Message] = deque()
        self._waiting: asyncio.Future[None] | None = None

    def arrive(self) -> None:
        """Have the next message that is under way: on one connection none overtakes another."""
        self.put(self.under_way.popleft())

    def put(self, message: Message) -> None:
        self._come.append(message)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def take(self) -> Message:
        while not self._come:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        message = self._come[0]
        if message["type"] not in ("lost", "http.disconnect"):  # which is so for good
            self._come.popleft()
        return message


class Exchange:
    """A request and its answer, on a connection of their own. Used by who asks; the other end is an application."""

    def __init__(self, network: Network, own: _End, other: _End) -> None:
        self._network, self.own, self.other = network, own, other
        self.is_over = self.is_broken = False

    async def head(self) -> tuple[int, list[tuple[bytes, bytes]]]:
        """Return the status and the headers of the answer.

        Raises:
            httpx2.ReadError: the connection is lost.
        """
        message = await self._next()
        return message["status"], message["headers"]

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the answer as it comes.

        Raises:
            httpx2.ReadError: the connection is lost.
        """
        more = True
        while more:
            message = await self._next()
            more = message.get("more_body", False)
            yield message.get("body", b"")
        self.is_over = True

    async def _next(self) -> Message:
        message = await self.own.take()
        if message is _LOST:
            raise httpx2.ReadError("the connection is lost")
        return message

    def close(self) -> None:
        """Listen no longer; the other end hears of it."""
        if not self.is_over:
            self.is_over = True
            self._network.carry(self, self.other, _GONE)

    # --- at the other end

    async def receive(self) -> Message:
        return await self.other.take()

    async def send(self, message: Message) -> None:
        self._network.carry(self, self.own, message)

    async def serve(self, daemon: Daemon, scope: dict[str, Any]) -> None:
        """Have an application answer; a connection whose answer is not whole ends."""
        is_whole = False

        async def send(message: Message) -> None:
            nonlocal is_whole
            is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
            await self.send(message)

        try:
            await daemon.application(scope, self.receive, send)
        except Exception as error:  # noqa: BLE001 - a server logs it, and ends the connection
            daemon.world.on_failed_request(daemon, error)
        if not is_whole:
            await self.send(_LOST)


class Network:
    """Carries what is sent. `parted` are pairs of places that do not reach each other."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.parted: dict[frozenset[str], list[tuple[Exchange, _End, Message]]] = {}
        self._open: list[Exchange] = []

    async def ask(
        self, place: str, machine: Machine, method: str, target: str, headers: Headers, body: bytes = b""
    ) -> Exchange:
        """Send a request to a machine, from the process that the caller is in.

        Raises:
            httpx2.ConnectError, httpx2.ConnectTimeout: no one answers there.
        """
        world = self._world
        if frozenset((place, machine.name)) in self.parted:
            await asyncio.sleep(CONNECT_S)
            raise httpx2.ConnectTimeout(f"{machine.name} does not answer")
        await asyncio.sleep(world.delay_s())
        daemon = machine.daemon
        if daemon is None or not daemon.is_ready:
            await asyncio.sleep(world.delay_s())
            raise httpx2.ConnectError(f"{machine.name} refuses the connection")
        own, other = _End(place, contextvars.copy_context()), _End(machine.name, daemon.context.copy())
        exchange = Exchange(self, own, other)
        self._open = [one for one in self._open if not one.is_over]
        self._open.append(exchange)
        path, _, query = target.partition("?")
        scope = {
            **{"type": "http", "method": method, "path": path, "raw_path": path.encode(), "scheme": "http"},
            **{"query_string": query.encode(), "headers": [(name.lower(), value) for name, value in headers]},
            **{"client": (place, 1), "server": (machine.name, 80), "http_version": "1.1", "root_path": ""},
        }
        other.put({"type": "http.request", "body": body, "more_body": False})
        self.carry(exchange, other, {"type": "open", "daemon": daemon, "scope": scope})
        return exchange

    def carry(self, exchange: Exchange, end: _End, message: Message) -> None:
        """Have a message arrive at an end, sometime or never."""
        world, between = self._world, frozenset((exchange.own.place, exchange.other.place))
        if world.is_over or exchange.is_broken:
            return
        if between in self.parted:
            self.parted[between].append((exchange, end, message))
            return
        if world.draws_loss():
            world.trace(f"{exchange.own.place} and {exchange.other.place}: a connection breaks")
            self._break(exchange)
            return
        end.arrives_at = when = max(world.loop.time() + world.delay_s(), end.arrives_at)
        if message["type"] == "open":
            world.loop.call_at(when, self._begin, exchange, message, context=end.context)
        else:
            end.under_way.append(message)
            world.loop.call_at(when, end.arrive, context=end.context)

    def _begin(self, exchange: Exchange, message: Message) -> None:
        work = exchange.serve(message["daemon"], message["scope"])
        self._world.loop.create_task(work, context=exchange.other.context)

    def _break(self, exchange: Exchange) -> None:
        exchange.is_over = exchange.is_broken = True
        for end, message in ((exchange.own, _LOST), (exchange.other, _GONE)):
            self._world.loop.call_later(self._world.delay_s(), end.put, message, context=end.context)

    def part(self, *places: str) -> None:
        self.parted.setdefault(frozenset(places), [])

    def join(self, *places: str) -> None:
        for exchange, end, message in self.parted.pop(frozenset(places), ()):
            self.carry(exchange, end, message)

    def lose(self, process: Process) -> None:
        """End the connections of a process that is gone."""
        if self._world.draws(_SILENT):
            return
        for exchange in self._open:
            if not exchange.is_over and process in (exchange.own.process, exchange.other.process):
                self._break(exchange)


class MemberTransport(httpx2.AsyncBaseTransport):
    """How a member sends requests to others. Closing it ends what is under way."""

    def __init__(self, network: Network, own: Machine) -> None:
        self._network, self._own = network, own
        self._open: list[Exchange] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        machine = next(one for one in self._own.world.machines if one.name == request.url.host)
        target, body = request.url.raw_path.decode("latin-1"), await request.aread()
        exchange = await self._network.ask(self._own.name, machine, request.method, target, request.headers.raw, body)
        self._open = [one for one in self._open if not one.is_over]
        self._open.append(exchange)
        try:
            status, headers = await exchange.head()
        except BaseException:
            exchange.close()
            raise
        return httpx2.Response(status, headers=headers, stream=_Body(exchange), request=request)

    async def aclose(self) -> None:
        for exchange in self._open:
            exchange.own.put(_LOST)
            exchange.close()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._exchange.body()

    async def aclose(self) -> None:
        self._exchange.close()


# --- the way in

PRESENT: ContextVar[Any] = ContextVar("daemon")
"""The daemon in whose process the present code runs."""


class _Served(State):
    @property
    def daemon(self) -> Any:
        return PRESENT.get()


@cache
def _endpoints() -> ASGIApp:
    """Return the real endpoints for turns, streams and members, of whichever daemon is asked."""
    app = FastAPI(
        default_response_class=JsonAnswer,
        openapi_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.state = _Served()
    add_problem_answers(app)
    add_routes(app, (turns.submissions, streams.router, cluster.unversioned))
    inner: ASGIApp = app.build_middleware_stack().app  # type: ignore[attr-defined] # below what the guard stands for

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = app
        await inner(scope, receive, send)

    return answer


class _Open:
    """Lets everyone in, and writes nothing down: stands for authentication, cross-site rules and the audit log."""

    def address_of(self, scope: object, headers: object) -> str:
        return "client"

    def scheme_of(self, scope: object, headers: object) -> str:
        return "http"

    async def identify(self, scope: object, headers: object) -> Caller:
        return EVERYONE

    def judge(self, *asked: object, **more: object) -> str:
        return "allowed"

    def allowed_origin(self, headers: object) -> None:
        return None

    def record(self, **facts: object) -> None:
        pass


def application(daemon: Daemon) -> RequestGuard:
    """Return the layers of a daemon's application, from the one that every request passes first."""
    open_: Any = _Open()
    return RequestGuard(
        Forwarding(_endpoints(), daemon=daemon),  # type: ignore[arg-type] # it has what is asked of it
        authentication=open_,
        cross_site=open_,
        audit=open_,
        metrics=daemon.metrics,
        find_channels=lambda: daemon.cluster.channels,
    )
