"""Downloads by http(s): with limits, conditional requests and redirects that lead nowhere they should not."""

import asyncio
import hashlib
import logging
import os
import ssl
import urllib.request
from collections.abc import Callable
from functools import cache
from pathlib import Path
from urllib.parse import urljoin

import httpx2

from amplifier_foundation.exceptions import RefResolutionError, RefResolutionReason
from amplifier_foundation.sources.resolved import Limits
from amplifier_system.urls import shown

from .redirects import RedirectError, check_address, check_redirect
from .url_cache import Entry, Fetched

_REDIRECTS = (301, 302, 303, 307, 308)
_NOT_MODIFIED = 304
_FIRST_ERROR = 400
_REASONS: dict[int, RefResolutionReason] = {401: "auth", 403: "auth", 404: "not-found", 410: "not-found"}
_TOTAL_TIMEOUT_S = 300.0


@cache
def _trust() -> ssl.SSLContext:
    """Return the certificates that servers must show; reading them takes tens of milliseconds."""
    return httpx2.create_ssl_context()


def _credentials(url: httpx2.URL) -> httpx2.BasicAuth | None:
    return httpx2.BasicAuth(url.username, url.password) if url.username or url.password else None


class _WithoutSecrets(logging.Filter):
    """The http client notes every request with its URL."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(shown(each) if isinstance(each, httpx2.URL) else each for each in record.args)
        return True


_without_secrets = _WithoutSecrets()


class Download:
    """One download of one reference."""

    def __init__(
        self, url: str, ref: str, limits: Limits, *, most_bytes: int, on_bytes: Callable[[int, int | None], None]
    ) -> None:
        self._url = url
        self._ref = ref
        self._limits = limits
        self._most_bytes = most_bytes
        self._on_bytes = on_bytes

    async def __call__(self, target: Path, entry: Entry | None) -> Fetched | None:
        """Fetch the URL to `target`; None when the server says that `entry` is current.

        Raises:
            RefResolutionError: with the reason.
        """
        logging.getLogger("httpx2").addFilter(_without_secrets)  # adding it again changes nothing
        try:
            async with asyncio.timeout(self._limits.fetch_timeout_s or _TOTAL_TIMEOUT_S):
                return await self._fetch(target, entry)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise self._failure("no answer in time", "timeout") from error
        except (httpx2.ConnectError, httpx2.ProxyError) as error:
            raise self._failure(f"cannot connect ({error})", "offline") from error
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise self._failure(str(error) or type(error).__name__, "network") from error

    async def _fetch(self, target: Path, entry: Entry | None) -> Fetched | None:
        headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
        if entry is not None:
            tags = {"If-None-Match": entry.meta.get("etag"), "If-Modified-Since": entry.meta.get("last_modified")}
            headers |= {name: str(value) for name, value in tags.items() if value}
        timeout_s, trust = self._limits.connect_timeout_s, await asyncio.to_thread(_trust)
        async with httpx2.AsyncClient(verify=trust, follow_redirects=False, timeout=timeout_s) as client:
            named = httpx2.URL(self._url)
            url, credentials = named.copy_with(username=None, password=None), _credentials(named)
            for _ in range(self._limits.redirects + 1):
                auth = credentials if self._is_named(url) and url.port == named.port else None
                async with client.stream("GET", url, headers=headers, auth=auth) as response:
                    self._check_peer(url, response)
                    if response.status_code not in _REDIRECTS or "location" not in response.headers:
                        return await self._read(response, target, entry)
                    next_url = httpx2.URL(urljoin(str(url), response.headers["location"]))
                await self._check_redirect(url, next_url)
                url = next_url
        raise self._failure(f"more than {self._limits.redirects} redirects", "network")

    async def _read(self, response: httpx2.Response, target: Path, entry: Entry | None) -> Fetched | None:
        status = response.status_code
        if status == _NOT_MODIFIED and entry is not None:
            return None
        if status >= _FIRST_ERROR or not response.is_success:
            raise self._failure(
                f"the server answers {status} {response.reason_phrase}", _REASONS.get(status, "network")
            )
        declared = response.headers.get("content-length", "")
        total = int(declared) if declared.isdigit() else None
        if total is not None:
            self._check_size(total)
        digest, size = hashlib.sha256(), 0
        with target.open("xb") as file:
            async for chunk in response.aiter_bytes(65536):
                size += len(chunk)
                self._check_size(size)
                digest.update(chunk)
                file.write(chunk)
                self._on_bytes(size, total)
            file.flush()
            await asyncio.to_thread(os.fsync, file.fileno())
        return Fetched(digest.hexdigest(), size, response.headers.get("etag"), response.headers.get("last-modified"))

    def _check_size(self, size: int) -> None:
        if size > self._most_bytes:
            raise self._failure(f"it is larger than {self._most_bytes:,} bytes", "too-large")

    async def _check_redirect(self, url: httpx2.URL, next_url: httpx2.URL) -> None:
        try:
            await check_redirect(self._url, str(url), str(next_url))
        except RedirectError as error:
            raise self._failure(str(error), "network") from None

    def _check_peer(self, url: httpx2.URL, response: httpx2.Response) -> None:
        """Look at the address that really answered: a name can change its address between two look-ups."""
        stream = response.extensions.get("network_stream")
        if self._is_named(url) or stream is None or urllib.request.getproxies():
            return
        if peer := stream.get_extra_info("server_addr"):
            try:
                check_address(url.host, str(peer[0]))
            except RedirectError as error:
                raise self._failure(str(error), "network") from None

    def _is_named(self, url: httpx2.URL) -> bool:
        """True if the reference itself names the host, which may be anywhere."""
        return url.host == httpx2.URL(self._url).host

    def _failure(self, problem: str, reason: RefResolutionReason) -> RefResolutionError:
        return RefResolutionError(f"Failed to download {shown(self._url)}: {problem}", self._ref, reason)
