"""The body of a response, decoded piece by piece, so that no more is decoded than is read."""

import asyncio
import time
import zlib
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from amplifier_kit.tools.input import ToolFailure

if TYPE_CHECKING:
    import httpx2

SNIFFED_BYTES = 8192  # of the start, which tell what a body is

_PIECE_BYTES = 1 << 16
_GRACE_S = 0.2  # for what is good to know but need not be waited for
_GZIP, _ZLIB, _RAW = zlib.MAX_WBITS | 16, zlib.MAX_WBITS, -zlib.MAX_WBITS
_GZIP_MAGIC = b"\x1f"


class Body:
    """Reads a response; `start` has what came first, `count` says how much was read, `is_read` whether that is all."""

    def __init__(self, response: "httpx2.Response") -> None:
        self.start = b""
        self.count = 0
        self.is_read = False
        self._encodings = _encodings(response)
        self._announced = response.headers.get("content-length", "")
        self._pieces = _decoded(response, self._encodings)
        self._waiting: list[bytes] = []
        self._coming: asyncio.Task[bytes] | None = None

    @property
    def total(self) -> int | None:
        """How many bytes there are, None while that is not known."""
        if self.is_read:
            return self.count
        return int(self._announced) if self._announced.isdecimal() and not self._encodings else None

    async def read(self, *, patiently: bool = True) -> bytes:
        """Return the next piece, nothing at the end; without patience also nothing when none comes soon."""
        if self._waiting:
            return self._waiting.pop(0)
        return await self._next(None if patiently else _GRACE_S)

    async def read_start(self, size: int) -> bytes:
        """Return the first bytes, fewer when they do not come soon; they are read again later."""
        piece = await self._next(None)
        until = time.monotonic() + _GRACE_S
        while piece:
            self._waiting.append(piece)
            piece = await self._next(max(until - time.monotonic(), 0)) if self.count < size else b""
        return self.start[:size]

    async def close(self) -> None:
        """Stop reading."""
        if self._coming is not None:
            self._coming.cancel()
            await asyncio.wait({self._coming})
        await self._pieces.aclose()

    async def _next(self, patience_s: float | None) -> bytes:
        if self._coming is None:
            self._coming = asyncio.create_task(self._read_one())
        done, _ = await asyncio.wait({self._coming}, timeout=patience_s)
        if not done:
            return b""
        piece, self._coming = self._coming.result(), None
        self.is_read = not piece
        self.count += len(piece)
        if len(self.start) < SNIFFED_BYTES:
            self.start += piece[: SNIFFED_BYTES - len(self.start)]
        return piece

    async def _read_one(self) -> bytes:
        return await anext(self._pieces, b"")


def _encodings(response: "httpx2.Response") -> list[str]:
    listed = response.headers.get("content-encoding", "").lower().split(",")
    return [name for name in map(str.strip, listed) if name not in ("", "identity")]


async def _decoded(response: "httpx2.Response", encodings: list[str]) -> AsyncGenerator[bytes, None]:
    if encodings not in ([], ["gzip"], ["x-gzip"], ["deflate"]):
        named = ", ".join(encodings)[:100]
        raise ToolFailure(f"The server sent an encoding that was not asked for: {named}", "unsupported_content")
    inflate = _Inflate(is_gzip=encodings != ["deflate"]) if encodings else None
    try:
        async with aclosing(response.aiter_raw()) as raw:
            async for data in raw:
                for piece in inflate.pieces(data) if inflate else [data]:
                    if piece:
                        yield piece
    except zlib.error:
        message = f"The body is not what its encoding says: {encodings[0]}"
        raise ToolFailure(message, "network_error", retryable=True) from None


class _Inflate:
    """Undoes gzip and deflate in pieces of bounded size, however much a few bytes stand for."""

    def __init__(self, *, is_gzip: bool) -> None:
        self._is_gzip = is_gzip
        self._stream = zlib.decompressobj(_GZIP if is_gzip else _ZLIB)
        self._is_first = True

    def pieces(self, data: bytes) -> Iterator[bytes]:
        piece = b""
        while data or len(piece) == _PIECE_BYTES:  # of a full piece there may be more, without further data
            if self._stream.eof and not self._begin_next_part(data):
                return
            piece = self._inflate(data)
            yield piece
            data = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail

    def _begin_next_part(self, data: bytes) -> bool:
        """Say whether what follows is one more part, as a gzip file may have; anything else is padding."""
        if not (self._is_gzip and data.startswith(_GZIP_MAGIC)):
            return False
        self._stream = zlib.decompressobj(_GZIP)
        return True

    def _inflate(self, data: bytes) -> bytes:
        is_first, self._is_first = self._is_first, False
        try:
            return self._stream.decompress(data, _PIECE_BYTES)
        except zlib.error:
            if self._is_gzip or not is_first:
                raise
            self._stream = zlib.decompressobj(_RAW)  # some servers leave out the header of deflate
            return self._stream.decompress(data, _PIECE_BYTES)
