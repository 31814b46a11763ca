"""A client of HTTP/1.1 that does as little as it can, so that what is measured or loaded is the server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

_LONGEST_LINE = 1 << 24


@dataclass(frozen=True)
class Answer:
    """What a request was answered."""

    status: int
    body: bytes

    def json(self) -> Any:
        """Return the body of a success, read."""
        if self.status >= 400:
            raise AssertionError(f"{self.status}: {self.body.decode(errors='replace')}")
        return json.loads(self.body) if self.body else None


class Connection:
    """One connection to a server, which is kept open from request to request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: bytes) -> None:
        self._reader, self._writer, self._head = reader, writer, head

    @classmethod
    async def open(cls, url: str, token: str | None = None) -> Self:
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=_LONGEST_LINE)
        given = f"Authorization: Bearer {token}\r\n" if token else ""
        return cls(reader, writer, f"Host: {place.netloc}\r\n{given}".encode())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._writer.transport.abort()

    async def get(self, path: str) -> Answer:
        return await self.ask("GET", path)

    async def post(
        self, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        return await self.ask("POST", path, json.dumps(dict(body or {})).encode(), headers)

    async def ask(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Answer:
        """Send a request and return its answer."""
        self._send(method, path, body, headers)
        status, answered = await self._begin()
        length = int(answered.get(b"content-length", b"0"))
        return Answer(status, await self._reader.readexactly(length))

    async def chunks(self, path: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[bytes]:
        """Yield what a stream sends, piece by piece as it was written, until the server ends it."""
        self._send("GET", path, b"", headers)
        status, _ = await self._begin()
        if status != 200:
            raise AssertionError(f"GET {path} was answered with {status}")
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]

    async def begin(self, path: str) -> int:
        """Ask for a stream and read nothing of it, not even into a buffer; return the status."""
        self._send("GET", path)
        status, _ = await self._begin()
        self._writer.transport.pause_reading()  # type: ignore[attr-defined]
        return status

    def _send(self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        kind = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body) if body else b""
        kind += "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items()).encode()
        self._writer.write(b"%b %b HTTP/1.1\r\n%b%b\r\n%b" % (method.encode(), path.encode(), self._head, kind, body))

    async def _begin(self) -> tuple[int, dict[bytes, bytes]]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        headers = (line.partition(b":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in headers}
