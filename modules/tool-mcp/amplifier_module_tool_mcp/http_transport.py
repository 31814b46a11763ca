"""Servers that are reached over HTTP, and the status of the answers they give.

Imported at the first start of a server only, since it needs the SDK.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, cast

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

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
