"""Servers that are reached over HTTP, and the status of the answers they give.

Imported at the first start of a server only, since it needs the SDK.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, cast

import anyio
import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from .entries import Endpoint, ServerSettings

_TIMEOUT_S = 30.0
_SSE_READ_TIMEOUT_S = 3600.0
_LARGEST_EVENT = 64 << 20


class Statuses:
    """The last status ≥ 400 that was answered to what one task sent."""

    def __init__(self) -> None:
        self.last: int | None = None


# The SDK sends in the context of the caller, so every caller sees the answers to its own requests.
statuses: ContextVar[Statuses] = ContextVar("statuses")


@asynccontextmanager
async def http_transport(settings: ServerSettings, on_refusal: Callable[[], None]) -> AsyncIterator[Any]:
    """Connect to the server; `on_refusal` is called with an error after which the SDK would leave a caller waiting."""
    endpoint = cast("Endpoint", settings.target)

    async def note(response: httpx2.Response) -> None:
        if response.status_code >= httpx2.codes.BAD_REQUEST:
            if (noted := statuses.get(None)) is not None:
                noted.last = response.status_code
            if settings.transport == "sse":
                on_refusal()

    hooks = {"response": [note]}
    if settings.transport == "sse":

        def client(
            headers: dict[str, str] | None = None,
            timeout: httpx2.Timeout | None = None,
            auth: httpx2.Auth | None = None,
        ) -> httpx2.AsyncClient:
            return httpx2.AsyncClient(headers=headers, timeout=timeout, auth=auth, event_hooks=hooks)

        async with sse_client(
            endpoint.url,
            headers=dict(endpoint.headers),
            timeout=_TIMEOUT_S,
            sse_read_timeout=_SSE_READ_TIMEOUT_S,
            httpx_client_factory=client,
        ) as streams:
            yield streams
        return
    timeout = httpx2.Timeout(_TIMEOUT_S, read=None)
    async with (
        httpx2.AsyncClient(headers=dict(endpoint.headers), timeout=timeout, event_hooks=hooks) as http_client,
        streamable_http_client(endpoint.url, http_client=http_client, max_sse_event_size=_LARGEST_EVENT) as streams,
    ):
        yield streams


class WatchedTransport:
    """A transport that reports everything the server sends, and the end of it."""

    def __init__(
        self,
        transport: AbstractAsyncContextManager[Any],
        on_item: Callable[[SessionMessage | Exception], None],
        on_end: Callable[[], None],
    ) -> None:
        self._transport, self._on_item, self._on_end = transport, on_item, on_end

    async def __aenter__(self) -> Any:
        incoming, outgoing = await self._transport.__aenter__()
        return _WatchedStream(incoming, self._on_item, self._on_end), outgoing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return await self._transport.__aexit__(kind, error, traceback)


class _WatchedStream:
    """What the server sends, item by item; like the stream it is made of, but for what it tells."""

    def __init__(
        self, stream: Any, on_item: Callable[[SessionMessage | Exception], None], on_end: Callable[[], None]
    ) -> None:
        self._stream, self._on_item, self._on_end = stream, on_item, on_end

    @property
    def last_context(self) -> Any:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> Any:
        try:
            item = await self._stream.receive()
        except anyio.EndOfStream:
            self._on_end()
            raise
        self._on_item(item)
        return item

    def __aiter__(self) -> "_WatchedStream":
        return self

    async def __anext__(self) -> Any:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> "_WatchedStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()
