"""Who a request comes from: a token, a login of the page, a ticket, or what a trusted proxy says."""

from __future__ import annotations

import re
from collections.abc import Mapping
from urllib.parse import parse_qs

from starlette.types import Scope

from amplifier_system.urls import is_loopback
from amplifierd.cluster.member_request import HELLO
from amplifierd.exceptions import UnauthorizedError
from amplifierd.server.auth.callers import EVERYONE, Caller
from amplifierd.server.auth.credentials import Credentials, FailedAttempts
from amplifierd.settings import Settings

from .cross_site import SAFE_METHODS
from .login_cookie import LoginCookie
from .request_headers import TrustedProxies, client_of, is_direct, peer_of, scheme_of, wants_html
from .routers import API

Headers = Mapping[bytes, bytes]

_PUBLIC = frozenset({"/health", "/ready", f"{API}/health", f"{API}/ready", "/auth/login", HELLO})
_PAGE = re.compile(r"/app(?:/.*)?", re.DOTALL)
"""The files of the page, which contain no user data."""

_DOCUMENTATION = frozenset({"/docs", "/openapi.json", f"{API}/docs", f"{API}/openapi.json"})
STREAM = re.compile(rf"{API}/(?:events|sessions/[^/]+/stream)")
_USER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")


class Authentication:
    """Answers for each request who sent it. The settings are those that the daemon was started with."""

    def __init__(self, settings: Settings, credentials: Credentials, cookie: LoginCookie) -> None:
        self._mode, self._credentials, self._cookie = settings.auth.mode, credentials, cookie
        self._proxies = TrustedProxies(settings.trusted_proxies)
        self._is_local_bind = settings.uds is not None or is_loopback(settings.host)
        self._failures = FailedAttempts()

    def address_of(self, scope: Scope, headers: Headers) -> str:
        return client_of(peer_of(scope), headers, self._proxies)

    def scheme_of(self, scope: Scope, headers: Headers) -> str:
        return scheme_of(scope, headers, self._proxies)

    async def identify(self, scope: Scope, headers: Headers) -> Caller | None:
        """Return who sent a request; None for one that needs no authentication.

        Raises:
            UnauthorizedError: it does not say who it is from, or not credibly.
            RequestRefusedError: too many attempts of this kind came from the address, or it was made by another site.
        """
        path, peer = scope["path"], peer_of(scope)
        if path in _PUBLIC or (scope["method"] in SAFE_METHODS and _is_of_page(path, headers)):
            return None
        direct = is_direct(peer, headers, self._proxies)
        if path in _DOCUMENTATION and self._is_local_bind and direct:
            return None
        if self._mode == "none":
            if direct:
                return EVERYONE
            raise UnauthorizedError("without authentication only this machine is served")
        if (authorization := headers.get(b"authorization")) is not None:
            return await self._by_token(authorization, self.address_of(scope, headers))
        if self._mode == "proxy" and self._proxies.has(peer):
            return _by_user(headers.get(b"x-authenticated-user", b""))
        if (caller := await self._cookie.identify(scope["method"], scope["scheme"], headers)) is not None:
            return caller
        if scope["method"] == "GET" and STREAM.fullmatch(path):
            return await self._by_ticket(scope, headers)
        raise UnauthorizedError("a token is needed", hint="send the header Authorization: Bearer TOKEN")

    async def _by_token(self, authorization: bytes, address: str) -> Caller:
        scheme, _, presented = authorization.decode("latin-1").partition(" ")
        caller = await self._credentials.find(presented.strip()) if scheme.lower() == "bearer" else None
        if caller is None:
            self._failures.count(address)
            raise UnauthorizedError("the token is not known here", hint="use the one in config/token of the home")
        return caller

    async def _by_ticket(self, scope: Scope, headers: Headers) -> Caller:
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        tickets = query.get("ticket", [])
        caller = await self._credentials.tickets.redeem(tickets[0], "stream") if len(tickets) == 1 else None
        if caller is None:
            if tickets:
                self._failures.count(self.address_of(scope, headers))
            raise UnauthorizedError("a token or a ticket is needed", hint="POST /api/v1/auth/ticket gives one")
        return caller


def _is_of_page(path: str, headers: Headers) -> bool:
    return bool(_PAGE.fullmatch(path)) or (path == "/" and wants_html(headers))


def _by_user(user: bytes) -> Caller:
    """Return whom a trusted proxy names; all users it lets through may run sessions, and none is an admin."""
    name = user.decode("latin-1")
    if not _USER.fullmatch(name):
        raise UnauthorizedError("the proxy does not say who the user is", hint="it has to set X-Authenticated-User")
    return Caller(name, name, "run", via="proxy")
