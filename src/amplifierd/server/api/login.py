"""Logging a browser in and out: by a link or a token, kept by a cookie."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import Field

from amplifierd.exceptions import RequestRefusedError, UnauthorizedError
from amplifierd.server.auth.callers import Caller
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Reader, TheCookie, TheDaemon, note
from amplifierd.server.http.login_cookie import (
    LoginCookie,
    ask_first,
    is_of_other_site,
    link_is_over,
    too_many_attempts,
)
from amplifierd.server.http.models import Body
from amplifierd.server.http.request_headers import read_headers
from amplifierd.server.http.routers import root_router

from .auth import Me

router = root_router("/auth", tags=["auth"])

PAGE = "/app/"
_HTML: dict[str, Any] = {"content": {"text/html": {"schema": {"type": "string"}}}}
Ticket = Annotated[str | None, Query(max_length=200, description="of a login link, good once and for a minute")]


class TokenLogin(Body):
    token: Annotated[str, Field(max_length=512)]


@router.get(
    "/login",
    response_class=HTMLResponse,
    responses={
        200: {"description": "The browser came from another site: a page that asks first"},
        303: {"description": "Logged in: to the page"},
        410: {"description": "The link was used or has expired: a page that says how to get a new one", **_HTML},
        429: {"description": "Too many links that do not work", **_HTML},
    },
)
async def log_in_by_link(daemon: TheDaemon, cookie: TheCookie, request: Request, ticket: Ticket = None) -> Response:
    """Log a browser in with the link from `amplifier daemon open`, and show the page."""
    if ticket is None:
        return _to_page()
    headers, credentials = read_headers(request.scope["headers"]), daemon.credentials
    try:
        daemon.failed_logins.check(request.state.address)
        caller = await credentials.tickets.find(ticket, "login")
        if caller is None and await cookie.find(headers) is not None:
            return _to_page()  # the link was followed twice
        if caller is None or credentials.tokens.find_hash(caller.token_hash) is None:
            daemon.failed_logins.count(request.state.address)
            return link_is_over()
    except RequestRefusedError as error:
        return too_many_attempts(error.retry_after or 0)
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        return ask_first(caller.name, ticket)
    if await credentials.tickets.redeem(ticket, "login") is None:
        return link_is_over()
    answer = _to_page()
    await _let_in(daemon, cookie, caller, request, answer)
    return answer


@router.post("/login")
async def log_in_by_token(
    daemon: TheDaemon, cookie: TheCookie, request: Request, response: Response, body: TokenLogin
) -> Me:
    """Log a browser in with a typed token; after five wrong ones within a minute, further attempts are refused."""
    if is_of_other_site(request.scope["scheme"], read_headers(request.scope["headers"])):
        raise RequestRefusedError("only the daemon's own page logs a browser in", code="origin-rejected")
    daemon.failed_logins.check(request.state.address)
    caller = await daemon.credentials.find(body.token.strip())
    if caller is None:
        daemon.failed_logins.count(request.state.address)
        raise UnauthorizedError("the token is not known here", hint="use the one in config/token of the home")
    await _let_in(daemon, cookie, caller, request, response)
    return Me.model_validate(caller)


@router.post("/logout", status_code=204)
async def log_out(daemon: TheDaemon, cookie: TheCookie, caller: Reader, request: Request, response: Response) -> None:
    """End the login of a browser."""
    if secret := cookie.secret(read_headers(request.scope["headers"])):
        await daemon.credentials.logins.end(secret)
    cookie.remove(response, secure=request.scope["scheme"] == "https")


async def _let_in(daemon: Daemon, cookie: LoginCookie, caller: Caller, request: Request, answer: Response) -> None:
    request.state.caller = caller
    note(request, login=caller.name)
    if before := cookie.secret(read_headers(request.scope["headers"])):
        await daemon.credentials.logins.end(before)
    secret = await daemon.credentials.logins.begin(caller)
    cookie.put(answer, secret, secure=request.scope["scheme"] == "https")


def _to_page() -> RedirectResponse:
    return RedirectResponse(PAGE, status_code=303)
