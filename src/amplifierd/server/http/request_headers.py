"""The headers of a request as one mapping, each name once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import Scope

from amplifierd.exceptions import RequestRefusedError
from amplifierd.settings import UNIX

MAX_BYTES = 32 * 1024
_SINGLE = frozenset(
    {
        b"host",
        b"origin",
        b"sec-fetch-site",
        b"authorization",
        b"cookie",
        b"content-type",
        b"content-length",
        b"x-authenticated-user",
        b"x-forwarded-proto",
        b"x-amplifier-channel",
        b"x-amplifier-caller",
    }
)
"""Headers that decide something: a second one would let two readers see two requests."""


def read_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return the headers by their names in lower case; those that may come twice are joined with commas.

    Raises:
        RequestRefusedError: they are too large, or one comes twice that must not.
    """
    headers: dict[bytes, bytes] = {}
    size = 0
    for name, value in raw:
        size += len(name) + len(value)
        if name not in headers:
            headers[name] = value
        elif name in _SINGLE:
            raise RequestRefusedError(f"the header {name.decode('latin-1')} is there twice", code="malformed-request")
        else:
            headers[name] = headers[name] + b", " + value
    if size > MAX_BYTES:
        raise RequestRefusedError(f"the headers have more than {MAX_BYTES} bytes", code="headers-too-large")
    return headers


def wants_html(headers: Mapping[bytes, bytes]) -> bool:
    """True if the answer is shown in a browser."""
    return b"text/html" in headers.get(b"accept", b"").lower()


# Where a request comes from, as far as that can be believed.


Address = IPv4Address | IPv6Address
Headers = Mapping[bytes, bytes]

_FORWARDED = (b"x-forwarded-for", b"forwarded", b"x-real-ip", b"x-forwarded-host")


class TrustedProxies:
    """The proxies whose word about a client counts: addresses, networks, or `unix`."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._unix = UNIX in texts
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(
            ip_network(text, strict=False) for text in texts if text != UNIX
        )

    def has(self, peer: Address | None) -> bool:
        """True if a peer is one of them; None is a peer without an address."""
        if peer is None:
            return self._unix
        return any(peer in network for network in self._networks if network.version == peer.version)


def peer_of(scope: Scope) -> Address | None:
    """Return the address at the other end of the connection, None where there is none."""
    client = scope.get("client")
    return _parse_peer(client[0]) if client else None


def client_of(peer: Address | None, headers: Headers, proxies: TrustedProxies) -> str:
    """Return the client's address as the last trusted proxy saw it; the peer's own unless the peer is such a proxy.

    `X-Forwarded-For` is read from right to left: what stands left of the first address that is not a proxy of ours was
    written by a stranger.
    """
    if not proxies.has(peer):
        return str(peer or UNIX)
    for text in reversed(headers.get(b"x-forwarded-for", b"").decode("latin-1").split(",")):
        address = _parse(text.strip())
        if address is None:
            return "unknown"
        if not proxies.has(address):
            return str(address)
    return "unknown"


def scheme_of(scope: Scope, headers: Headers, proxies: TrustedProxies) -> str:
    """Return how the client speaks to us, or to the trusted proxy that takes its TLS off: `http` or `https`."""
    found = headers.get(b"x-forwarded-proto", b"").decode("latin-1").lower()
    if found in ("http", "https") and proxies.has(peer_of(scope)):
        return found
    scheme: str = scope["scheme"]
    return scheme


def is_direct(peer: Address | None, headers: Headers, proxies: TrustedProxies) -> bool:
    """True if a request comes from this machine and was not forwarded for another client."""
    if any(name in headers for name in _FORWARDED) or proxies.has(peer):
        return False
    return peer is None or peer.is_loopback


@lru_cache(maxsize=256)
def _parse_peer(text: str) -> Address | None:
    """Parse what the system says, for every request of a connection."""
    return _parse(text)


def _parse(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
