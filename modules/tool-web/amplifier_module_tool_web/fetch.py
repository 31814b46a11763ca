"""One fetch: from a URL, over its redirects, to a response; and what is reported about it."""

import asyncio
import codecs
import re
import time
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from amplifier_kit.concerns import Concern, host_and_port, refusal_of
from amplifier_kit.policy import PolicyError, SessionPolicy
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.runs import announce

from .session import WebSession
from .settings import Settings, Target, blocked, shown_url, source_id

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
        """True if what follows is one more part, as a gzip file may have; anything else is padding."""
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


_HTML_TYPES = ("text/html", "application/xhtml+xml")
_HTML_START = re.compile(rb"\s*(<!doctype html|<html)[\s>]", re.IGNORECASE)
_BINARY_TYPES = re.compile(
    r"(image|audio|video|font)/.*|.*\+zip|application/("
    r"pdf|zip|gzip|x-gzip|x-tar|x-bzip2?|x-xz|zstd|x-7z-compressed|vnd\.rar|x-rar-compressed|java-archive|wasm|"
    r"msword|vnd\.ms-.*|vnd\.openxmlformats-.*|vnd\.oasis\.opendocument\..*|x-executable|x-sqlite3|vnd\.sqlite3|"
    r"vnd\.android\.package-archive|vnd\.debian\.binary-package|x-rpm|x-apple-diskimage|x-iso9660-image|"
    r"x-shockwave-flash|font-.*|x-font-.*)"
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([\w.:-]+)", re.IGNORECASE)
_META = re.compile(rb"<meta\s[^>]*?charset\s*=\s*[\"']?\s*([\w.:-]+)", re.IGNORECASE)
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_WIDE = ("utf-16", "utf-32")
_NOT_CHARSETS = frozenset(("punycode", "unicode-escape", "raw-unicode-escape"))
_WITHOUT_ORDER = {"utf-16": "utf-16-le", "utf-32": "utf-32-le"}  # what is meant where no mark tells


@dataclass(frozen=True, slots=True)
class ContentType:
    """What the server says about a body; `name` is without parameters, None when it says nothing."""

    name: str | None
    charset: str | None

    @classmethod
    def parse(cls, header: str) -> "ContentType":
        name, _, parameters = header.partition(";")
        charset = _CHARSET.search(parameters)
        return cls(name.strip().lower() or None, _known(charset[1]) if charset else None)

    @property
    def is_binary(self) -> bool:
        return self.name is not None and _BINARY_TYPES.fullmatch(self.name) is not None

    def is_html(self, start: bytes) -> bool:
        if self.name is None:
            return _HTML_START.match(start.removeprefix(codecs.BOM_UTF8)) is not None
        return self.name in _HTML_TYPES

    def encoding(self, start: bytes) -> str:
        """Return how text is encoded: as the server says, a byte order mark, the document, else UTF-8."""
        mark = next((name for mark, name in _MARKS if start.startswith(mark)), None)
        if self.charset is not None:
            return mark if mark and mark.startswith(self.charset) else _WITHOUT_ORDER.get(self.charset, self.charset)
        meta = None if mark else _META.search(start)
        named = _known(meta[1].decode("ascii", "replace")) if meta else None
        return mark or ("utf-8" if named is None or named.startswith(_WIDE) else named)

    def require_text(self, start: bytes, total: int | None) -> None:
        """Raise `ToolFailure` for what cannot be shown as text."""
        has_null = b"\0" in start[:SNIFFED_BYTES] and not self.encoding(start).startswith(_WIDE)
        if self.is_binary or has_null:
            size = "unknown size" if total is None else f"{total} bytes"
            raise ToolFailure(
                f"Cannot show {self.name or 'binary content'} ({size}) as text; use save_to_file to save it",
                "unsupported_content",
                content_type=self.name,
                total_bytes=total,
            )


def _known(charset: str) -> str | None:
    """Return the name under which Python knows a charset, None when it does not."""
    try:
        name = codecs.lookup(charset).name
        b"x".decode(name, "replace")
    except (LookupError, ValueError):
        return None
    if name in _NOT_CHARSETS:
        return None
    return "cp1252" if name == "iso8859-1" else name  # as every browser reads it


FETCHED = "tool-web:fetched"

_TOOL = "web_fetch"
_MAX_REDIRECTS = 10
_REDIRECTS = frozenset((301, 302, 303, 307, 308))
_RETRYABLE = frozenset((408, 425, 429, 500, 502, 503, 504))


@dataclass(slots=True)
class Fetch:
    """What is known about a fetch so far; `source_url` is where the answer came from."""

    url: str
    settings: Settings
    session: WebSession
    policy: SessionPolicy
    coordinator: Any
    source_url: str | None = None
    status_code: int | None = None
    content_type: ContentType | None = None
    body: Body | None = None
    redirects: int = 0
    success: bool = False
    code: str | None = None
    _asked: str = ""
    _limit: asyncio.Timeout | None = None
    _started: float = field(default_factory=time.monotonic)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[Body]:
        """Yield the body of the answer, within the time that a fetch may take; raises `ToolFailure`.

        Making the session, which the first fetch does, is not part of that time.
        """
        target = self.require(self.url)
        client = await self.session.client()
        self._limit = limit = asyncio.timeout(self.settings.timeout_s)
        try:
            async with limit, self._translated(), self._answered(client, target) as response:
                self.body = Body(response)
                try:
                    yield self.body
                finally:
                    await self.body.close()
        except TimeoutError:
            raise ToolFailure(f"Timeout fetching {shown_url(self.url)}", "timeout", retryable=True) from None

    def require(self, url: str, *, https_only: bool = False) -> Target:
        """Return the target of a URL; raises `ToolFailure` when tool or session may not reach it."""
        target = self.settings.policy.check(url, https_only=https_only)
        try:
            self.policy.check_url(target.text)
        except PolicyError as exc:
            raise blocked(url, str(exc)) from None
        return target

    def source(self) -> dict[str, Any]:
        """Return what is said about where an output comes from."""
        final = self.source_url or self.url
        return {
            "url": self.url,
            "requested_url": self.url,
            "source_url": final,
            "source_id": source_id(final),
            "status_code": self.status_code,
        }

    async def announce(self) -> None:
        """Tell that the fetch is over."""
        data = {
            "url": shown_url(self.url),
            "source_url": self.source_url,
            "status_code": self.status_code,
            "content_type": self.content_type.name if self.content_type else None,
            "bytes": self.body.count if self.body else 0,
            "redirects": self.redirects,
            "duration_ms": int((time.monotonic() - self._started) * 1000),
            "success": self.success,
            "code": self.code,
        }
        await announce(self.coordinator, FETCHED, data)

    @asynccontextmanager
    async def _translated(self) -> AsyncIterator[None]:
        """Tell the model what went wrong on the network."""
        import httpx2  # the session has imported it by now

        from .pinned_connections import PrivateAddressError

        try:
            yield
        except PrivateAddressError:
            raise blocked(self._asked, "its host has an address that is not public") from None
        except httpx2.TimeoutException:
            raise TimeoutError from None
        except httpx2.InvalidURL:
            raise blocked(self._asked, "it is not a URL") from None
        except httpx2.HTTPError as exc:
            message = f"Network error fetching {shown_url(self._asked)}: {str(exc)[:200] or type(exc).__name__}"
            raise ToolFailure(message, "network_error", retryable=True) from None

    @asynccontextmanager
    async def _answered(self, client: "httpx2.AsyncClient", target: Target) -> AsyncIterator["httpx2.Response"]:
        """Yield the response that has what was asked for."""
        https_only = target.scheme == "https"
        while True:
            self._asked = target.text
            response = await client.send(client.build_request("GET", target.text), stream=True)
            try:
                self.status_code, self.source_url = response.status_code, target.text
                location = response.headers.get("location")
                if response.status_code not in _REDIRECTS or not location:
                    self.content_type = ContentType.parse(response.headers.get("content-type", ""))
                    _require_success(response)
                    yield response
                    return
            finally:
                await response.aclose()
            if self.redirects == _MAX_REDIRECTS:
                raise ToolFailure("Too many redirects", "too_many_redirects", retryable=False)
            self.status_code = self.source_url = None
            target = await self._redirected(target, location, https_only=https_only)
            self.redirects += 1

    async def _redirected(self, source: Target, location: str, *, https_only: bool) -> Target:
        """Return where an answer leads, once that may be reached: another host is a question of its own."""
        url, host = _joined(source.text, location), host_and_port(source.text)
        target = self.require(url, https_only=https_only)
        concern = host_concern(target, url, redirected_from=host or source.host)
        if concern.subject != host:
            with self._unlimited():
                refusal = await refusal_of(self.coordinator, concern, _TOOL)
            if refusal is not None:
                raise blocked(target.text, f"it is redirected to another host: {refusal}")
        return target

    @contextmanager
    def _unlimited(self) -> Iterator[None]:
        """Keep the time that a person takes to answer out of the time that the fetch has."""
        limit, started_s = self._limit, asyncio.get_running_loop().time()
        end_s = limit.when() if limit is not None else None
        if limit is None or end_s is None:
            yield
            return
        limit.reschedule(None)
        try:
            yield
        finally:
            limit.reschedule(end_s + asyncio.get_running_loop().time() - started_s)


def host_concern(target: Target, url: str, *, redirected_from: str = "") -> Concern:
    """Return what a person is asked about before a target is read; the whole URL is shown as it was given."""
    subject = host_and_port(target.text) or target.host
    words = f"{redirected_from} redirects to {subject}" if redirected_from else f"{_TOOL} reaches {subject}"
    return Concern("host", subject, words, url)


def _joined(base: str, location: str) -> str:
    try:
        return urljoin(base, location)
    except ValueError:
        raise blocked(location, "it is not a URL") from None


def _require_success(response: "httpx2.Response") -> None:
    status = response.status_code
    if not 200 <= status < 300:
        reason = response.reason_phrase or (HTTPStatus(status).phrase if status in set(HTTPStatus) else "")
        message = f"HTTP {status}: {reason}"
        raise ToolFailure(message, "http_error", status_code=status, retryable=status in _RETRYABLE)
