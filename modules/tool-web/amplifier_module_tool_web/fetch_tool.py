"""The tool `web_fetch`: read a page or save a file from the web."""

import asyncio
import codecs
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from amplifier_core import ToolResult
from amplifier_kit.concerns import Concern
from amplifier_kit.policy import session_policy
from amplifier_kit.tools.effects import NETWORK, WRITE
from amplifier_kit.tools.input import ToolFailure, read_input
from amplifier_kit.tools.paths import WorkingDir
from amplifier_kit.tools.paths import shown as as_text
from amplifier_kit.tools.runs import AnsweringTool, detached, in_worker, run_to_end

from .download import Destination, Download, concerns_of_saving, find_destination
from .fetch import SNIFFED_BYTES, Body, ContentType, Fetch, host_concern
from .html_text import HtmlText
from .session import WebSession
from .settings import Settings, shown_url

# The part of a text that was asked for.


SPARE_BYTES = 4  # read beyond a window: they tell that there is more, and complete its only character


@dataclass(frozen=True, slots=True)
class Window:
    """What was asked for: `limit` bytes from `offset`."""

    offset: int
    limit: int

    @property
    def needed(self) -> int:
        """How many bytes of a text tell all there is to know."""
        return self.offset + self.limit + SPARE_BYTES


@dataclass(frozen=True, slots=True)
class View:
    """What of a text is shown; `has_more` says that it goes on."""

    text: str
    size: int
    has_more: bool


def view(data: bytes, window: Window, encoding: str, *, has_more: bool, exact: bool = False) -> View:
    """Return what the window shows of `data`, which begins at its offset; `has_more`: not all of the rest is there.

    It ends between two characters and has at least one; an exact one ends where it ends.
    """
    has_more = has_more or len(data) > window.limit
    if exact or not has_more:
        data = data[: window.limit]
        return View(_shown(data, window, encoding), len(data), has_more)
    size = min(window.limit, len(data))
    whole = _whole(data[:size], encoding)
    while whole == 0 and size < len(data):
        size += 1
        whole = _whole(data[:size], encoding)
    return View(_shown(data[:whole], window, encoding), whole, has_more)


def note(window: Window, shown: View, total: int | None) -> str:
    """Return what is said below a text that goes on."""
    known = "an unknown total" if total is None else str(total)
    end = window.offset + shown.size
    return (
        f"\n\n[Truncated: bytes {window.offset} to {end} of {known}, limit {window.limit}. "
        f"To go on use offset={end}, a larger limit, or save_to_file.]"
    )


def _shown(data: bytes, window: Window, encoding: str) -> str:
    if window.offset and encoding == "utf-8":
        data = data[next((index for index, byte in enumerate(data[:3]) if byte & 0xC0 != 0x80), 0) :]
    text = data.decode(encoding, "replace")
    return text if window.offset else text.removeprefix("\ufeff")


def _whole(data: bytes, encoding: str) -> int:
    """Return how many of the bytes are whole characters."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    decoder.decode(data)
    return len(data) - len(decoder.getstate()[0])


logger = logging.getLogger(__name__)

_DOCUMENT_BYTES = 10 << 20  # of an HTML document that are read
_PREVIEW_CHARS = 1000
_MARKUP_START = 1024  # the part of a document that names its encoding


class WebFetchTool(AnsweringTool):
    name = "web_fetch"
    effects = frozenset({NETWORK, WRITE})
    description = (
        "Fetch a public http or https URL and return its text; HTML becomes plain text with its links. Long content "
        "comes in windows: use offset and limit to read on. Binary content (images, PDF, archives) can only be saved, "
        "with save_to_file. Private and local addresses are refused. To find pages use web_search; not for local files."
    )

    def __init__(
        self,
        config: Mapping[str, Any] | None,
        shared_session: WebSession | None = None,
        coordinator: Any = None,
        *,
        settings: Settings | None = None,
    ) -> None:
        self.coordinator = coordinator
        self.settings = settings or Settings.read(config)
        self.session = shared_session or WebSession(self.settings)
        self.input_schema: dict[str, Any] = {
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "What to fetch, with http:// or https://."},
                "save_to_file": {
                    "type": "string",
                    "description": "Save the whole content to this file instead, and return only its beginning.",
                },
                "offset": {"type": "integer", "default": 0, "description": "The first byte to return."},
                "limit": {
                    "type": "integer",
                    "default": self.settings.default_limit,
                    "description": "How many bytes to return at most.",
                },
            },
            "required": ["url"],
        }

    def effects_of(self, input: Mapping[str, Any]) -> frozenset[str]:
        """Return what one call does: it writes when it saves."""
        return self.effects if input.get("save_to_file") else frozenset({NETWORK})

    def retry_of(self, input: Mapping[str, Any]) -> str:
        """Return whether one call may be repeated: it may unless it saves."""
        return "never" if input.get("save_to_file") else "safe"

    def concerns_of(self, input: Mapping[str, Any]) -> tuple[Concern, ...]:
        """Return the host that a call reaches and the running place it saves to; none where the tool will refuse."""
        url, path = input.get("url"), input.get("save_to_file")
        if not isinstance(url, str):
            return ()
        try:
            fetch = self._fetch_of(url)
            host = host_concern(fetch.require(fetch.url), fetch.url)
        except ToolFailure:
            return ()
        if not isinstance(path, str) or not path:
            return (host,)
        return (host, *concerns_of_saving(path, self.settings, self.coordinator))

    async def close(self) -> None:
        """Close the HTTP session; a second call does nothing."""
        await self.session.close()

    async def answer(self, given: Any) -> ToolResult:
        given = read_input(self.name, self.input_schema, given, texts={"url": "url is required"})
        for key, least in (("offset", 0), ("limit", 1)):
            if given[key] < least:
                raise ToolFailure(f"{self.name}: {key!r} must be at least {least}, got {given[key]}", "invalid_input")
        fetch = self._fetch_of(given["url"])
        logger.debug("web_fetch %s", shown_url(fetch.url))
        try:
            output = await self._fetch(fetch, given)
            fetch.success = True
        except ToolFailure as problem:
            fetch.code = problem.code
            raise
        except asyncio.CancelledError:
            fetch.code = "cancelled"
            raise
        except Exception:
            fetch.code = "internal_error"
            raise
        finally:
            await fetch.announce()
        return ToolResult(success=True, output=output)

    def _fetch_of(self, url: str) -> Fetch:
        policy = session_policy(self.coordinator, WorkingDir(self.settings.working_dir, self.coordinator).path())
        return Fetch(url.strip(), self.settings, self.session, policy, self.coordinator)

    async def _fetch(self, fetch: Fetch, given: dict[str, Any]) -> dict[str, Any]:
        path = given.get("save_to_file")
        if path:
            fetch.require(fetch.url)
            destination = await in_worker(lambda stop: find_destination(path, self.settings, self.coordinator))
            await destination.agree(self.coordinator, self.name)
            return await self._save(fetch, destination)
        window = Window(given["offset"], min(given["limit"], self.settings.max_download_bytes))
        async with fetch.opened() as body:
            kind = _kind(fetch)
            if kind.is_binary:
                kind.require_text(b"", body.total)
            if await self._is_extracted(kind, body):
                return await self._show_html(fetch, kind, body, window)
            return await self._show(fetch, kind, body, window)

    async def _is_extracted(self, kind: ContentType, body: Body) -> bool:
        """True if the text of a document is wanted and not its source; may read ahead to know."""
        if not self.settings.extract_text or (kind.name is not None and not kind.is_html(b"")):
            return False
        is_known = kind.name is not None and kind.charset is not None
        return kind.is_html(b"" if is_known else await body.read_start(_MARKUP_START))

    async def _show(self, fetch: Fetch, kind: ContentType, body: Body, window: Window) -> dict[str, Any]:
        """Return a window of the body as it is."""
        kept = bytearray()
        position = 0
        while position < window.needed:
            piece = await body.read(patiently=position < window.offset + window.limit)
            if not piece:
                break
            kept += piece[max(window.offset - position, 0) :]
            position += len(piece)
        kind.require_text(body.start, body.total)
        shown = view(
            bytes(kept),
            window,
            kind.encoding(body.start),
            has_more=not body.is_read,
            exact=not self.settings.extract_text,
        )
        return _output(fetch, window, shown, total=body.total, total_shown=body.total)

    async def _show_html(self, fetch: Fetch, kind: ContentType, body: Body, window: Window) -> dict[str, Any]:
        """Return a window of the text of a document."""
        kind.require_text(body.start, body.total)
        document = HtmlText(fetch.source_url or fetch.url, kind.encoding(body.start))
        while document.size < window.needed and body.count < _DOCUMENT_BYTES and (piece := await body.read()):
            await _feed(document, piece)
        if body.is_read:
            await _feed(document, b"", is_end=True)
        text = document.text().encode("utf-8", "replace")
        shown = view(text[window.offset : window.needed], window, "utf-8", has_more=False)
        output = _output(fetch, window, shown, total=body.total, total_shown=len(text) if body.is_read else None)
        if not (shown.has_more or body.is_read):
            output["truncated"] = True
            output["content"] += f"\n\n[Truncated: the document goes on, only its first {body.count} bytes were read.]"
        return {**output, "title": document.title} if document.title else output

    async def _save(self, fetch: Fetch, destination: Destination) -> dict[str, Any]:
        download = Download(destination)
        try:
            async with fetch.opened() as body:
                kind = _kind(fetch)
                is_html = await self._is_extracted(kind, body)
                document = HtmlText(fetch.source_url or fetch.url, kind.encoding(body.start)) if is_html else None
                while piece := await body.read():
                    self._require_size(body)
                    if document:
                        await _feed(document, piece)
                    else:
                        await _write(download, piece)
                if document:
                    await _feed(document, b"", is_end=True)
                    text = document.text()
                    await _write(download, text.encode("utf-8", "replace"))
                await in_worker(lambda stop: download.finish())
        finally:
            await run_to_end(asyncio.to_thread(download.discard))
        output = {
            **fetch.source(),
            "content": _preview(text if document else _text_of(kind, body), download.size, as_text(destination.shown)),
            "content_type": kind.name,
            "truncated": False,
            "total_bytes": body.count,
            "saved_to": as_text(destination.shown),
            "saved_bytes": download.size,
        }
        return {**output, "title": document.title} if document and document.title else output

    def _require_size(self, body: Body) -> None:
        limit = self.settings.max_download_bytes
        if max(body.count, body.total or 0) > limit:
            raise ToolFailure(f"The content is larger than the {limit} bytes that may be saved", "too_large")


def _kind(fetch: Fetch) -> ContentType:
    return fetch.content_type or ContentType(None, None)


async def _write(download: Download, data: bytes) -> None:
    await in_worker(lambda stop: download.write(data))


async def _feed(document: HtmlText, data: bytes, *, is_end: bool = False) -> None:
    await detached("tool-web-html", lambda: document.feed(data, is_end=is_end))


def _output(fetch: Fetch, window: Window, shown: View, *, total: int | None, total_shown: int | None) -> dict[str, Any]:
    """Return what the model is told; the window is one of `total_shown` bytes, made from the `total` of the body."""
    output = {
        **fetch.source(),
        "content": shown.text,
        "content_type": _kind(fetch).name,
        "truncated": shown.has_more,
        "total_bytes": total,
        "offset": window.offset,
        "limit": window.limit,
        "returned_bytes": shown.size,
    }
    if shown.has_more:
        output["content"] += note(window, shown, total_shown)
        output["next_offset"] = window.offset + shown.size
    return output


def _text_of(kind: ContentType, body: Body) -> str | None:
    """Return the beginning of what was saved, None if that is not text."""
    try:
        kind.require_text(body.start, None)
    except ToolFailure:
        return None
    return body.start[:SNIFFED_BYTES].decode(kind.encoding(body.start), "replace").removeprefix("\ufeff")


def _preview(text: str | None, size: int, saved_to: str) -> str:
    if text is None:
        return f"[Binary content, {size} bytes saved to {saved_to}]"
    return f"{text[:_PREVIEW_CHARS]}\n\n[The beginning; {size} bytes saved to {saved_to}]"
