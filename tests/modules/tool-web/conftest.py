"""A site on loopback, an internet that leads to it, and the two tools."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from amplifier_module_tool_web import mount

from amplifier_core import ToolResult
from amplifier_core.testing import EventRecorder, MockCoordinator

Respond = Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Seen:
    """One request as the site saw it."""

    path: str
    headers: dict[str, str]
    body: bytes = b""


@dataclass
class Site:
    """A server on loopback; what is put at a path is what a request for it gets."""

    port: int = 0
    seen: list[Seen] = field(default_factory=list)
    connections: int = 0
    _pages: dict[str, Respond] = field(default_factory=dict)
    _running: set[asyncio.Task[Any]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [request.path for request in self.seen]

    def put(
        self,
        path: str,
        body: str | bytes = "",
        content_type: str | None = "text/plain",
        status: int = 200,
        **headers: str,
    ) -> str:
        """Serve a page and return its URL; `_` in the name of a header stands for `-`."""
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if content_type is not None:
            named["Content-Type"] = content_type
        if "Transfer-Encoding" not in named:
            named.setdefault("Content-Length", str(len(data)))
        head = "".join(f"{name}: {value}\r\n" for name, value in named.items())

        async def respond(writer: asyncio.StreamWriter) -> None:
            writer.write(f"HTTP/1.1 {status} Status\r\n{head}Connection: close\r\n\r\n".encode() + data)

        self.serve_at(path, respond)
        return self.url + path

    def serve_at(self, path: str, respond: Respond) -> None:
        self._pages[path] = respond

    def redirect(self, path: str, to: str, status: int = 302) -> str:
        return self.put(path, status=status, Location=to)

    def stream(self, path: str, chunk: bytes, content_type: str = "text/plain", pause_s: float = 0) -> str:
        """Serve a body that never ends; with no chunk, none that begins."""

        async def respond(writer: asyncio.StreamWriter) -> None:
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n\r\n".encode())
            while chunk:
                writer.write(chunk)
                await writer.drain()
                await asyncio.sleep(pause_s)
            await asyncio.Event().wait()

        self.serve_at(path, respond)
        return self.url + path

    def hang(self, path: str) -> str:
        """Never answer."""

        async def respond(writer: asyncio.StreamWriter) -> None:
            await asyncio.Event().wait()

        self.serve_at(path, respond)
        return self.url + path

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._running.add(task)
        self.connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            path = lines[0].split()[1]
            self.seen.append(Seen(path, headers, body))
            page = self._pages.get(path) or self._pages.get(path.partition("?")[0])
            if page is None:
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                await page(writer)
            await writer.drain()
        writer.close()
        self._running.discard(task)

    async def stop(self) -> None:
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(set(self._running))


OpenSite = Callable[..., Awaitable[Site]]


@pytest.fixture
async def open_site() -> AsyncIterator[OpenSite]:
    async with AsyncExitStack() as stack:

        async def open_one(host: str = "127.0.0.1", context: ssl.SSLContext | None = None) -> Site:
            site = Site()
            server = await asyncio.start_server(site.serve, host, 0, ssl=context)
            await stack.enter_async_context(server)
            stack.push_async_callback(site.stop)
            stack.callback(server.close)
            site.port = server.sockets[0].getsockname()[1]
            return site

        yield open_one


@pytest.fixture
async def site(open_site: OpenSite) -> Site:
    return await open_site()


class Internet:
    """Names and public addresses that exist in one test: look-ups are answered here, connections lead to sites.

    A name with several answers gives the next one at every look-up, and the last one from then on.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked_up: list[str] = []
        self.connected: list[str] = []
        self._answers: dict[str, list[list[str]]] = {}
        self._sites: dict[str, Site] = {}
        connect, getaddrinfo = socket.socket.connect, socket.getaddrinfo

        def look_up(host: Any, port: Any, *args: Any, **options: Any) -> Any:
            if host not in self._answers:
                return getaddrinfo(host, port, *args, **options)
            self.looked_up.append(host)
            answers = self._answers[host]
            addresses = answers.pop(0) if len(answers) > 1 else answers[0]
            if not addresses:
                raise socket.gaierror(socket.EAI_NONAME, "unknown")
            return [_entry(address, port or 0) for address in addresses]

        def connect_to_site(client: socket.socket, address: Any) -> None:
            self.connected.append(address[0])
            site = self._sites.get(address[0])
            connect(client, ("127.0.0.1", site.port) if site else address)

        monkeypatch.setattr(socket, "getaddrinfo", look_up)
        monkeypatch.setattr(socket.socket, "connect", connect_to_site)

    def name(self, host: str, *answers: list[str]) -> None:
        self._answers[host] = list(answers)

    def place(self, address: str, site: Site) -> None:
        self._sites[address] = site


def _entry(address: str, port: int) -> tuple[Any, ...]:
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    return Internet(monkeypatch)


class Web:
    """The mounted tools and the events they emitted."""

    def __init__(self, coordinator: MockCoordinator, cleanup: Callable[[], Awaitable[None]]) -> None:
        self.coordinator, self.cleanup = coordinator, cleanup
        self.recorder = EventRecorder()
        coordinator.hooks.register("tool-web:fetched", self.recorder.record, name="recorder")

    @property
    def events(self) -> list[dict[str, Any]]:
        return [data for _, data in self.recorder.events]

    async def fetch(self, url: str, **given: Any) -> ToolResult:
        result: ToolResult = await self.coordinator.get("tools", "web_fetch").execute({"url": url, **given})
        return result

    async def page(self, url: str, **given: Any) -> dict[str, Any]:
        """Fetch what can be fetched and return the output."""
        result = await self.fetch(url, **given)
        assert result.success, result.error
        output: dict[str, Any] = result.output
        return output

    async def search(self, query: Any) -> ToolResult:
        result: ToolResult = await self.coordinator.get("tools", "web_search").execute({"query": query})
        return result


MountWeb = Callable[..., Awaitable[Web]]


@pytest.fixture
async def mount_web(tmp_path: Path) -> AsyncIterator[MountWeb]:
    mounted: list[Web] = []

    async def mount_one(**config: Any) -> Web:
        coordinator = MockCoordinator()
        work = tmp_path / "work"
        work.mkdir(exist_ok=True)
        cleanup = await mount(coordinator, {"working_dir": str(work), **config})
        mounted.append(Web(coordinator, cleanup))
        return mounted[-1]

    yield mount_one
    for web in mounted:
        await web.cleanup()


@pytest.fixture
async def web(mount_web: MountWeb) -> Web:
    """The tools as they are without configuration."""
    return await mount_web()


@pytest.fixture
async def local_web(mount_web: MountWeb) -> Web:
    """The tools with private networks open to them."""
    return await mount_web(blocked_domains=[])


@pytest.fixture
def code_of() -> Callable[[ToolResult], str]:
    def code_of(result: ToolResult) -> str:
        assert not result.success
        assert result.error is not None
        assert result.output == result.error["message"]
        return str(result.error["code"])

    return code_of
