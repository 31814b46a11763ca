"""What endpoints ask for by type: the daemon that serves them, and who calls.

All of it is async, though nothing is awaited: FastAPI would call plain functions in a thread, for every request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from amplifier_system.urls import shown
from amplifierd.exceptions import UnauthorizedError
from amplifierd.server.auth.callers import Caller, Scope
from amplifierd.server.daemon import Daemon

from .login_cookie import LoginCookie
from .request_guard import AUDIT_DETAILS


async def _daemon(request: Request) -> Daemon:
    daemon: Daemon = request.app.state.daemon
    return daemon


async def _login_cookie(request: Request) -> LoginCookie:
    cookie: LoginCookie = request.app.state.login_cookie
    return cookie


@dataclass(frozen=True)
class requires:
    """A dependency: the caller, who has the scope."""

    scope: Scope

    async def __call__(self, request: Request) -> Caller:
        caller: Caller | None = request.state.caller
        if caller is None:
            raise UnauthorizedError("a token is needed")
        caller.check(self.scope)
        return caller


def note(request: Request, **facts: Any) -> None:
    """Have the audit log say more about a request than its path; passwords in sources are left out."""
    data = {name: shown(value) if isinstance(value, str) else value for name, value in facts.items()}
    setattr(request.state, AUDIT_DETAILS, data)


TheDaemon = Annotated[Daemon, Depends(_daemon)]
TheCookie = Annotated[LoginCookie, Depends(_login_cookie)]
Reader = Annotated[Caller, Depends(requires("read"))]
Runner = Annotated[Caller, Depends(requires("run"))]
Admin = Annotated[Caller, Depends(requires("admin"))]
