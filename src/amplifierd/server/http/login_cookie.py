"""The cookie by which the page's requests are known, and which of them it is good for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from html import escape

from fastapi.responses import HTMLResponse
from starlette.responses import Response

from amplifierd.exceptions import RequestRefusedError
from amplifierd.server.auth.callers import Caller
from amplifierd.server.auth.credentials import Credentials
from amplifierd.server.auth.logins import LIFETIME_S
from amplifierd.settings import Settings

from .cross_site import SAFE_METHODS, own_origin

Headers = Mapping[bytes, bytes]

PAGE_HEADER = b"x-amplifier-page"
"""A header that the page sets and no form, link or image of another site can send."""

_OF_THE_PAGE = (b"same-origin", b"none")
"""Who may read, by what a browser says of a request: the page, and a user who typed the address."""


class LoginCookie:
    """The cookie of one daemon, or of all that share a store.

    Browsers send cookies to every port of a host, so its name is that of the home, or of what `names` the cluster.
    """

    def __init__(self, names: str, settings: Settings, credentials: Credentials) -> None:
        self.name = f"amplifier-{hashlib.sha256(names.encode()).hexdigest()[:12]}"
        self._credentials = credentials
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """Let the pages that settings name read with a login."""
        self._origins = frozenset(settings.security.allowed_origins)

    async def find(self, headers: Headers) -> Caller | None:
        """Return whom the cookie of a request stands for, wherever the request comes from."""
        secret = self.secret(headers)
        if not secret:
            return None
        caller = self._credentials.logins.find(secret)
        if caller is None:
            await self._credentials.look_again()
            caller = self._credentials.logins.find(secret)
        return caller

    async def identify(self, method: str, scheme: str, headers: Headers) -> Caller | None:
        """Return who sent a request, by its cookie; None when it has none that is good.

        Raises:
            RequestRefusedError: it has one, and another site may have made the browser send it.
        """
        caller = await self.find(headers)
        if caller is not None and not self._may_use(method, scheme, headers):
            raise RequestRefusedError(
                "a login works only for requests from the daemon's own page",
                code="origin-rejected",
                hint="programs and other pages send the header Authorization: Bearer TOKEN",
            )
        return caller

    def secret(self, headers: Headers) -> str | None:
        """Return what the browser shows; two cookies of the name, one of them a stranger's, count for nothing."""
        pairs = (part.strip().partition("=") for part in headers.get(b"cookie", b"").decode("latin-1").split(";"))
        found = {value for name, _, value in pairs if name == self.name}
        return found.pop() if len(found) == 1 else None

    def put(self, response: Response, secret: str, *, secure: bool) -> None:
        """Have the browser keep a secret where no script can read it."""
        response.set_cookie(self.name, secret, max_age=LIFETIME_S, httponly=True, samesite="lax", secure=secure)

    def remove(self, response: Response, *, secure: bool) -> None:
        response.delete_cookie(self.name, httponly=True, samesite="lax", secure=secure)

    def _may_use(self, method: str, scheme: str, headers: Headers) -> bool:
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if method in SAFE_METHODS:
            is_listed = origin is not None and origin.decode("latin-1") in self._origins
            return site is None or site in _OF_THE_PAGE or is_listed
        return headers.get(PAGE_HEADER) == b"1" and is_same_origin(scheme, headers)


def is_same_origin(scheme: str, headers: Headers) -> bool:
    """True if a browser tells that a request comes from a page of ours; one that tells nothing does not."""
    found = _told(scheme, headers)
    return bool(found) and all(found)


def is_of_other_site(scheme: str, headers: Headers) -> bool:
    """True if a browser tells that a request does not come from a page of ours; programs tell nothing."""
    return not all(_told(scheme, headers))


def _told(scheme: str, headers: Headers) -> list[bool]:
    """Return what each header that browsers add says about whether a page of ours sent a request."""
    origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
    return [
        *([] if origin is None else [origin.decode("latin-1") == own_origin(scheme, headers)]),
        *([] if site is None else [site == b"same-origin"]),
    ]


# What a user sees after a login link that does not log in at once: plain pages without scripts.


_TOKEN = (
    '<p>Or log in with a token, for example the one in <code>config/token</code>: <a href="/app/">to the page</a>.</p>'
)


def link_is_over() -> HTMLResponse:
    """Say how to get a link that works."""
    return _page(
        410,
        "This login link no longer works",
        "<p>A link logs in once, within a minute. Get a new one where the daemon runs:</p>\n"
        f"<pre><code>amplifier daemon open</code></pre>\n{_TOKEN}",
    )


def too_many_attempts(seconds: float) -> HTMLResponse:
    answer = _page(
        429,
        "Too many login links that do not work",
        f"<p>Wait {max(1, round(seconds))} seconds, then get a new one with <code>amplifier daemon open</code>.</p>",
    )
    answer.headers["Retry-After"] = str(max(1, round(seconds)))
    return answer


def ask_first(name: str, ticket: str) -> HTMLResponse:
    """Let a person decide who came here from another site, which may have made them come."""
    return _page(
        200,
        "Log in?",
        f"<p>You came here from another page. The link logs this browser in with the token <b>{escape(name)}</b>.</p>\n"
        f'<p><a href="/auth/login?ticket={escape(ticket)}">Log in</a></p>\n'
        "<p>If you did not ask for it, close this page.</p>",
    )


def _page(status: int, title: str, body: str) -> HTMLResponse:
    return HTMLResponse(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        '<link rel="icon" href="/app/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/app/page.css">'
        f"<title>{title} · Amplifier</title></head>\n<body><main>\n<h1>{title}</h1>\n{body}\n</main></body></html>\n",
        status_code=status,
    )
