"""Connections to checked addresses. Imports httpx2, so it is imported when something is fetched."""

import asyncio
import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any

import httpx2

from amplifier_kit.policy import Address, is_public

_MAX_ADDRESSES = 4  # that are tried, one after the other


class PrivateAddressError(Exception):
    """A host that has to be public has an address that is not."""


class PinnedTransport(httpx2.AsyncBaseTransport):
    """Looks a name up once, checks every address, and connects to one of these; Host and SNI keep the name.

    A connection serves one request: it is found by its address, and must not be used for another name.
    """

    def __init__(self, must_be_public: Callable[[str], bool], *, timeout_s: float) -> None:
        self._must_be_public = must_be_public
        self._timeout_s = timeout_s
        self._inner = httpx2.AsyncHTTPTransport(limits=httpx2.Limits(max_keepalive_connections=0))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        host = request.url.raw_host.decode("ascii")
        addresses = await _look_up(host, request.url.port)
        if self._must_be_public(host) and not all(map(is_public, addresses)):
            raise PrivateAddressError
        candidates = addresses[:_MAX_ADDRESSES]
        timeout = {**request.extensions.get("timeout", {}), "connect": self._timeout_s / len(candidates)}
        extensions = {**request.extensions, "sni_hostname": host, "timeout": timeout}
        *others, last = candidates
        for address in others:
            try:
                return await self._send(request, address, extensions)
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                continue
        return await self._send(request, last, extensions)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _send(self, request: httpx2.Request, address: Address, extensions: dict[str, Any]) -> httpx2.Response:
        pinned = httpx2.Request(
            request.method,
            request.url.copy_with(host=str(address)),
            headers=request.headers,
            stream=request.stream,
            extensions=extensions,
        )
        return await self._inner.handle_async_request(pinned)


async def _look_up(host: str, port: int | None) -> list[Address]:
    """Return the addresses of a host, at least one, the preferred first; raises `httpx2.ConnectError`."""
    try:
        return [ip_address(host)]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as exc:
        raise httpx2.ConnectError(f"the name {host} cannot be resolved") from exc
    addresses = list(dict.fromkeys(ip_address(entry[4][0]) for entry in found))
    if not addresses:
        raise httpx2.ConnectError(f"the name {host} has no address")
    return addresses
