"""Connections are bounded: in number for each address, and in the time that a request may take to come."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn
from starlette.exceptions import HTTPException
from starlette.types import Message

from amplifierd.control.serve import ConnectionBounds, bounded_protocol
from amplifierd.server.http.request_body import bounded

HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answer(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(0.5 if scope["path"] == "/slow" else 0)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(**bounds: Any) -> AsyncIterator[int]:
    """Serve an application of two words until the block ends, and yield the port."""
    config = uvicorn.Config(
        answer,
        host="127.0.0.1",
        port=0,
        log_level="critical",
        lifespan="off",
        ws="none",
        http=bounded_protocol(ConnectionBounds(**bounds)),
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield server.servers[0].sockets[0].getsockname()[1]
    server.should_exit = True
    await task


async def opened(port: int, *sent: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for piece in sent:
        writer.write(piece)
        await writer.drain()
    return reader, writer


async def answered(port: int) -> bytes:
    """Send a request on a connection of its own, and return what comes back; nothing where it was cut off."""
    with suppress(ConnectionError):
        reader, writer = await opened(port, HEAD)
        found = await reader.read(12)
        writer.close()
        return found
    return b""


@pytest.mark.parametrize("beginning", [b"", b"GET / HT", HEAD[:-2], HEAD + b"GET /again"])
async def test_a_request_that_does_not_come_ends_its_connection(beginning: bytes) -> None:
    async with serving(head_patience_s=0.1) as port, asyncio.timeout(30):
        reader, writer = await opened(port, beginning)
        received = await reader.read()
        writer.close()

    assert received.count(b"200 OK") == beginning.startswith(HEAD)


async def test_a_request_that_came_is_answered_however_long_that_takes() -> None:
    async with serving(head_patience_s=0.1) as port, asyncio.timeout(30):
        reader, writer = await opened(port, HEAD.replace(b"/ ", b"/slow "))
        assert await reader.read(12) == b"HTTP/1.1 200"
        writer.close()


async def test_so_many_connections_may_come_from_one_address() -> None:
    async with serving(max_per_address=3) as port, asyncio.timeout(30):
        held = [await opened(port) for _ in range(3)]
        assert await answered(port) == b""
        held.pop()[1].close()
        while await answered(port) != b"HTTP/1.1 200":  # noqa: ASYNC110 - the server has to notice it first
            await asyncio.sleep(0.01)
        for _, writer in held:
            writer.close()


async def test_a_proxy_may_bring_any_number() -> None:
    async with serving(max_per_address=1, is_exempt=lambda address: address == "127.0.0.1") as port:
        async with asyncio.timeout(30):
            held = [await opened(port) for _ in range(3)]
            assert await answered(port) == b"HTTP/1.1 200"
            for _, writer in held:
                writer.close()


async def test_a_body_that_does_not_come_ends_its_request() -> None:
    pieces: list[Message] = [{"type": "http.request", "body": b"{", "more_body": True}]

    async def receive() -> Message:
        return pieces.pop() if pieces else await asyncio.Future()

    limited = bounded(receive, patience_s=0.05)
    assert (await limited())["body"] == b"{"
    with pytest.raises(HTTPException) as raised:
        await limited()
    assert raised.value.status_code == 408


async def test_after_the_body_a_request_may_wait_for_ever() -> None:
    has_left = asyncio.Event()
    messages: list[Message] = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await has_left.wait()
        return {"type": "http.disconnect"}

    limited = bounded(receive, patience_s=0.05)
    assert (await limited())["body"] == b"{}"
    asyncio.get_running_loop().call_later(0.2, has_left.set)
    assert (await limited())["type"] == "http.disconnect"
