"""Which hosts a request may name, and which web pages it may come from."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal
from urllib.parse import urlsplit

from amplifier_system.urls import canonical_host, is_loopback
from amplifierd.settings import Settings

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""

Verdict = Literal["allowed", "host-rejected", "origin-rejected"]
Headers = Mapping[bytes, bytes]

_ANY_ADDRESS = ("0.0.0.0", "::")


class CrossSite:
    """Keeps other people's web pages, and names that were bent to lead here, away from the daemon."""

    def __init__(self, settings: Settings) -> None:
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Judge by settings from now on."""
        own = () if settings.host in _ANY_ADDRESS else (settings.host,)
        member = urlsplit(settings.cluster.address or "").hostname
        named = (*own, *settings.security.allowed_hosts, *([member] if member else []))
        self._hosts = frozenset(map(_canonical, named))
        self._origins = frozenset(settings.security.allowed_origins)

    def judge(self, method: str, scheme: str, headers: Headers, *, has_address: bool) -> Verdict:
        """Say whether a request may go on; a peer without an address may name any host."""
        host = headers.get(b"host", b"").decode("latin-1")
        if has_address and not self._is_host(host):
            return "host-rejected"
        origin = headers.get(b"origin")
        if origin is not None:
            text = origin.decode("latin-1")
            is_fine = text in self._origins or text == own_origin(scheme, headers)
            return "allowed" if is_fine else "origin-rejected"
        is_foreign = headers.get(b"sec-fetch-site") == b"cross-site"
        return "origin-rejected" if is_foreign and method not in SAFE_METHODS else "allowed"

    def allowed_origin(self, headers: Headers) -> bytes | None:
        """Return the origin of a request that its answer may be shown to, beside the daemon's own."""
        origin = headers.get(b"origin")
        return origin if origin is not None and origin.decode("latin-1") in self._origins else None

    def _is_host(self, host: str) -> bool:
        name = _canonical(_without_port(host))
        return bool(name) and (name in self._hosts or is_loopback(name))


def own_origin(scheme: str, headers: Headers) -> str:
    """Return the origin of the daemon's own pages, as the browser that sent a request sees it."""
    return f"{scheme}://{headers.get(b'host', b'').decode('latin-1')}"


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


@lru_cache(maxsize=1024)
def _canonical(host: str) -> str:
    try:
        return canonical_host(host)
    except ValueError:
        return ""
