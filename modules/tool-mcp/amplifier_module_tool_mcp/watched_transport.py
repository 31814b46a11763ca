"""A look at what a server sends, on its way from the transport to the SDK. Imported at the first start only."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

import anyio
from mcp.shared.message import SessionMessage


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
