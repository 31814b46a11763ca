"""One fetch: from a URL, over its redirects, to a response; and what is reported about it."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

from amplifier_kit.concerns import Concern, host_and_port, refusal_of
from amplifier_kit.policy import PolicyError, SessionPolicy
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.runs import announce

from .body import Body
from .content import ContentType
from .session import WebSession
from .settings import Settings
from .url_policy import Target, blocked, shown_url, source_id

if TYPE_CHECKING:
    import httpx2

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
