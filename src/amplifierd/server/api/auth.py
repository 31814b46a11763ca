"""Tokens and tickets: who may use the daemon."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Annotated, Any, Self

from fastapi import Depends, Path, Request
from pydantic import Field, model_validator

from amplifierd.exceptions import ForbiddenError
from amplifierd.limits import Limits
from amplifierd.server.auth.callers import Scope
from amplifierd.server.auth.tickets import LIFETIME_S, Purpose
from amplifierd.server.http.dependencies import Reader, TheDaemon, note, requires
from amplifierd.server.http.models import Answer, Body, Page, PageLimit, PageOffset, paged, problems
from amplifierd.server.http.routers import api_router, root_router

router = api_router(tags=["auth"])
unversioned = root_router()

_ADMIN = [Depends(requires("admin"))]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


class NewTicket(Body):
    purpose: Purpose = Field(default="stream", description="to open one stream, or to log a browser in")


class Ticket(Answer):
    """Good once, for a minute."""

    ticket: str
    expires_in_seconds: int
    path: str | None = Field(default=None, description="of a login: the link that logs a browser in")


class Me(Answer):
    """The caller, as the daemon knows it."""

    name: str
    owner: str
    scope: Scope
    via: str


class TokenInfo(Answer):
    """A token without its secret."""

    name: str
    scope: Scope
    owner: str
    created_at: str | None = None
    limits: dict[str, Any] | None = None
    roots: list[str] = Field(default_factory=list)


class TokenPage(Page):
    tokens: list[TokenInfo]


class NewToken(Body):
    name: Name
    scope: Scope = "run"
    owner: Name | None = Field(default=None, description="whose sessions it sees; by default its name")
    limits: Limits | None = Field(default=None, description="the limits of each session that it creates")
    roots: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(
        default_factory=list, max_length=100, description="directories that its sessions work in or below; none: any"
    )

    @model_validator(mode="after")
    def _check_roots(self) -> Self:
        if self.roots and self.scope == "admin":
            raise ValueError("an admin cannot be bound to directories")
        if any("\0" in root or not pathlib.Path(root).expanduser().is_absolute() for root in self.roots):
            raise ValueError("a root is an absolute path")
        return self


class CreatedToken(TokenInfo):
    token: str = Field(description="the secret; it is not shown again")


@router.post("/auth/ticket", status_code=201)
@unversioned.post("/auth/ticket", status_code=201, include_in_schema=False)
async def create_ticket(daemon: TheDaemon, caller: Reader, body: NewTicket | None = None) -> Ticket:
    """Give out a ticket: for a stream, to be sent as `?ticket=` where a header cannot be, or to log a browser in."""
    purpose = body.purpose if body else "stream"
    if purpose == "login" and caller.via != "token":
        hint = "ask with the header Authorization: Bearer TOKEN, or: amplifier daemon open"
        raise ForbiddenError("only the holder of a token can log a browser in", hint=hint)
    ticket = await daemon.credentials.tickets.issue(caller, purpose)
    path = f"/auth/login?ticket={ticket}" if purpose == "login" else None
    return Ticket(ticket=ticket, expires_in_seconds=LIFETIME_S, path=path)


@router.get("/auth/me")
async def show_caller(caller: Reader) -> Me:
    """Say who the caller is."""
    return Me.model_validate(caller)


@router.get("/tokens", dependencies=_ADMIN)
async def list_tokens(daemon: TheDaemon, limit: PageLimit = 100, offset: PageOffset = 0) -> TokenPage:
    """List the tokens, without their secrets."""
    tokens, facts = paged(await asyncio.to_thread(daemon.credentials.tokens.list), limit, offset)
    return TokenPage(tokens=[TokenInfo(**token.to_json()) for token in tokens], **facts)


@router.post("/tokens", status_code=201, dependencies=_ADMIN, responses=problems(409))
async def create_token(daemon: TheDaemon, request: Request, body: NewToken) -> CreatedToken:
    """Create a named token; this answer alone has its secret, so it is not kept for an `Idempotency-Key`."""
    note(request, name=body.name, scope=body.scope)
    token, secret = await daemon.credentials.create_token(
        body.name, body.scope, owner=body.owner, limits=body.limits, roots=body.roots
    )
    return CreatedToken(**token.to_json(), token=secret)


@router.delete("/tokens/{name}", status_code=204, dependencies=_ADMIN, responses=problems(404))
async def revoke_token(daemon: TheDaemon, name: Annotated[Name, Path()]) -> None:
    """Revoke a token at once; `default` gets a new secret in `config/token`."""
    await daemon.credentials.revoke_token(name)
