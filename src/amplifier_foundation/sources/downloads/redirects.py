"""Where a redirect may lead: to the host that the reference names, or to a public one, by http or https."""

import asyncio
import ipaddress
import socket
from urllib.parse import urlsplit

from amplifier_system.urls import is_public


class RedirectError(Exception):
    """A redirect leads where nobody asked to go; the text says where."""


async def check_redirect(named: str, url: str, target: str) -> list[str]:
    """Look at a redirect from `url` to `target`; `named` is what the reference itself names, which may be anywhere.

    Returns the addresses of the target's host that were found to be public: none where it is the named host, or where
    its name is unknown here, as it may be behind a proxy.

    Raises:
        RedirectError: it may not be followed.
    """
    scheme, host = urlsplit(target).scheme, urlsplit(target).hostname or ""
    if scheme not in ("http", "https"):
        raise RedirectError(f"it redirects to {scheme!r}")
    if urlsplit(url).scheme == "https" and scheme == "http":
        raise RedirectError("it redirects from https to http")
    if host == urlsplit(named).hostname:
        return []
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return []
    addresses = sorted({str(entry[4][0]) for entry in found})
    for address in addresses:
        check_address(host, address)
    return addresses


def check_address(host: str, address: str) -> None:
    """Raise `RedirectError` when an address of a host that nobody named is not public."""
    if not is_public(ipaddress.ip_address(address.partition("%")[0])):
        raise RedirectError(f"it redirects to {host}, a private address ({address})")
