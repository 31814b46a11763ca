"""A proxy through which a program without a network reaches the hosts that it may.

The program runs in a network of its own, with nothing in it but loopback. A small shim before it listens there and
hands the listening descriptor out over an inherited pair of sockets; this process accepts what connects to it. HTTP
with `CONNECT` and plain HTTP pass, which is what curl, git, pip and npm use; names are looked up here.
"""

import asyncio
import base64
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

from amplifier_system.tasks import start_task
from amplifier_system.urls import canonical_host

if TYPE_CHECKING:
    from .program import Program

logger = logging.getLogger(__name__)

ANSWER_S = 60.0

_HEAD_BYTES = 65_536
_HEAD_S = 30.0
_CONNECT_S = 30.0
_PIECE_BYTES = 65_536
_LOCAL = "localhost,127.0.0.1,::1"
_PORTS = {"http": 80, "https": 443}
_DROPPED = (b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization", b"host")
# Without the modules `socket` and `os`, whose imports take longer than everything else here but the interpreter itself.
_SHIM = f"""
import posix, sys
from _socket import AF_INET, AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET, socket
listener = socket(AF_INET, SOCK_STREAM)
listener.bind(("127.0.0.1", 0))
listener.listen(128)
out = int(sys.argv[1])
pair = socket(AF_UNIX, SOCK_STREAM, 0, out)
pair.sendmsg([b"x"], [(SOL_SOCKET, SCM_RIGHTS, listener.fileno().to_bytes(4, sys.byteorder))])
posix.close(pair.detach())
proxy = b"http://127.0.0.1:%d" % listener.getsockname()[1]
for name in (b"HTTP_PROXY", b"HTTPS_PROXY", b"ALL_PROXY"):
    posix.environ[name] = posix.environ[name.lower()] = proxy
posix.environ[b"NO_PROXY"] = posix.environ[b"no_proxy"] = b"{_LOCAL}"
posix.environ[b"NODE_USE_ENV_PROXY"] = b"1"
if "/" in sys.argv[2]:
    posix.execve(sys.argv[2], sys.argv[2:], posix.environ)
import os
os.execvpe(sys.argv[2], sys.argv[2:], posix.environ)
"""

RefusalOf = Callable[[str, int, str], Awaitable[str | None]]
"""Returns why a host and port may not be reached, None where they may; it is also given the URL, where it is known."""

_serving: set[asyncio.Task[None]] = set()  # the loop alone would not keep them


@dataclass(frozen=True, slots=True)
class _Request:
    """The first request of a connection; `rest` is what is passed on of it."""

    host: str
    port: int
    url: str
    is_tunnel: bool
    rest: bytes = b""

    @classmethod
    def read(cls, head: bytes) -> "_Request":
        """Raises `ValueError` for what no proxy is asked for."""
        line, *headers = head.removesuffix(b"\r\n\r\n").split(b"\r\n")
        method, target, version = line.decode("ascii").split(" ")
        if method == "CONNECT":
            parts = urlsplit(f"//{target}")
            return cls(canonical_host(parts.hostname or ""), parts.port or 443, target, is_tunnel=True)
        parts = urlsplit(target)
        if parts.scheme != "http":
            raise ValueError("not the address of a page")
        port = parts.port or _PORTS["http"]
        path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        authority = parts.netloc.rpartition("@")[2]
        kept = [header for header in headers if header.partition(b":")[0].strip().lower() not in _DROPPED]
        lines = [f"{method} {path} {version}".encode(), f"Host: {authority}".encode(), b"Connection: close", *kept]
        rest = b"\r\n".join(lines) + b"\r\n\r\n"
        return cls(canonical_host(parts.hostname or ""), port, target, is_tunnel=False, rest=rest)


class HostProxy:
    """Passes on what one program sends, to the hosts that it may reach. Each is asked about once."""

    def __init__(
        self,
        refusal_of: RefusalOf,
        refuses_address: Callable[[str], bool],
        *,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._refusal_of, self._refuses_address = refusal_of, refuses_address
        self._proxies = getproxies_environment()
        self._answer_s = answer_s
        self._decisions: dict[tuple[str, int], asyncio.Task[str | None]] = {}
        self._connections: set[asyncio.Task[None]] = set()
        self._ours, self.descriptor = _pair()

    def before(self, arguments: Sequence[str | bytes]) -> list[str | bytes]:
        """Return a program with the shim before it; `descriptor` has to be open in it.

        The shim needs the standard library only, so it runs with the interpreter that a virtual environment leads to:
        the environment itself may lie in `/tmp`, of which a program has its own.
        """
        return [os.path.realpath(sys.executable), "-I", "-S", "-c", _SHIM, str(self.descriptor), *arguments]

    def serve(self, program: "Program") -> None:
        """Begin to serve a program, to its end."""
        task = start_task(self._serve(program))
        _serving.add(task)
        task.add_done_callback(_serving.discard)

    async def _serve(self, program: "Program") -> None:
        serving = start_task(self._accept())
        try:
            await program.wait()
        finally:
            self._ours.close()
            tasks = [serving, *self._connections, *self._decisions.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def abandon(self) -> None:
        """Close this side of what was made for a program that did not start."""
        self._ours.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        listener = await self._listener()
        if listener is None:
            return
        with listener:
            while True:
                connection, _ = await loop.sock_accept(listener)
                task = start_task(self._serve_connection(connection))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)

    async def _listener(self) -> socket.socket | None:
        """Return the socket that the shim listens on, None when the program ended before it did."""
        loop, is_there = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._ours, is_there.set)
        try:
            await is_there.wait()
        finally:
            loop.remove_reader(self._ours)
        _, descriptors, _, _ = socket.recv_fds(self._ours, 1, 1)
        if not descriptors:
            return None
        listener = socket.socket(fileno=descriptors[0])
        listener.setblocking(False)
        return listener

    async def _serve_connection(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection, limit=_HEAD_BYTES)
        try:
            await self._pass_on(reader, writer)
        except (OSError, ValueError, UnicodeError, TimeoutError, asyncio.IncompleteReadError) as exc:
            logger.debug("a connection of a command failed: %s", exc)
        except asyncio.LimitOverrunError:
            await _answer(writer, "431 Request Header Fields Too Large", "the head of the request is too large")
        finally:
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_HEAD_S):
            head = await reader.readuntil(b"\r\n\r\n")
        try:
            request = _Request.read(head)
        except ValueError as exc:
            return await _answer(writer, "400 Bad Request", f"this proxy passes http and CONNECT on: {exc}")
        refusal = await self._decided(request)
        if refusal is not None:
            return await _answer(writer, "403 Forbidden", f"{request.host}:{request.port} is not reached: {refusal}")
        try:
            async with asyncio.timeout(_CONNECT_S):
                upstream, sent = await self._connected(request)
        except PermissionError as exc:
            return await _answer(writer, "403 Forbidden", str(exc))
        except (OSError, ValueError, TimeoutError) as exc:
            return await _answer(writer, "502 Bad Gateway", f"{request.host}:{request.port} cannot be reached: {exc}")
        try:
            if request.is_tunnel:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                upstream[1].write(sent)
            await _both_ways((reader, writer), upstream)
        finally:
            upstream[1].close()

    async def _decided(self, request: _Request) -> str | None:
        key = (request.host, request.port)
        if key not in self._decisions:
            self._decisions[key] = start_task(self._decide(request))
        return await asyncio.shield(self._decisions[key])

    async def _decide(self, request: _Request) -> str | None:
        try:
            async with asyncio.timeout(self._answer_s):
                return await self._refusal_of(request.host, request.port, request.url)
        except TimeoutError:
            return f"nobody agreed to it within {self._answer_s:g} seconds"

    async def _connected(self, request: _Request) -> tuple["_Stream", bytes]:
        """Return a connection to the host, or through the person's own proxy, and the request as it is sent there."""
        proxy = self._proxies.get("https" if request.is_tunnel else "http")
        is_direct = not proxy or proxy_bypass(f"{request.host}:{request.port}", self._proxies)
        addresses = await self._addresses(request, must_resolve=is_direct)
        if not proxy or is_direct:
            return await _first_of(addresses, request.port), request.rest
        return await _through(proxy, request)

    async def _addresses(self, request: _Request, *, must_resolve: bool) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(request.host, request.port, type=socket.SOCK_STREAM)
        except OSError:
            if must_resolve:
                raise
            return []  # the person's own proxy may know the name
        addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        for address in addresses:
            if self._refuses_address(address):
                raise PermissionError(f"{request.host} leads to {address} (policy.network.deny)")
        return addresses


_Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def _pair() -> tuple[socket.socket, int]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    return ours, theirs.detach()


async def _first_of(addresses: Iterable[str], port: int) -> _Stream:
    failure: OSError = OSError("it has no address")
    for address in addresses:
        try:
            return await asyncio.open_connection(address, port)
        except OSError as exc:
            failure = exc
    raise failure


async def _through(proxy: str, request: _Request) -> tuple[_Stream, bytes]:
    """Return a connection through another proxy, and the request as that one takes it; raises `OSError`."""
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    if parts.scheme not in _PORTS or not parts.hostname:
        raise OSError(f"the proxy of this machine is not reached by http: {parts.scheme}")
    port = parts.port or _PORTS[parts.scheme]
    stream = await asyncio.open_connection(parts.hostname, port, ssl=parts.scheme == "https" or None)
    login = b""
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        login = b"Proxy-Authorization: Basic " + base64.b64encode(pair.encode()) + b"\r\n"
    if not request.is_tunnel:
        line, _, headers = request.rest.partition(b"\r\n")
        method, _, version = line.split(b" ")
        return stream, b" ".join((method, request.url.encode(), version)) + b"\r\n" + login + headers
    reader, writer = stream
    host = f"[{request.host}]" if ":" in request.host else request.host
    target = f"{host}:{request.port}"
    writer.write(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n".encode() + login + b"\r\n")
    answer = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
    if answer.split(b" ")[1:2] != [b"200"]:
        writer.close()
        raise OSError(f"the proxy of this machine says {answer.decode('ascii', 'replace')[:100]}")
    return stream, b""


async def _both_ways(one: _Stream, other: _Stream) -> None:
    """Pass on what comes from either side until both have ended."""
    await asyncio.gather(_one_way(one[0], other[1]), _one_way(other[0], one[1]))


async def _one_way(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while piece := await reader.read(_PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            if writer.can_write_eof():
                writer.write_eof()


async def _answer(writer: asyncio.StreamWriter, status: str, text: str) -> None:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
    await writer.drain()
