"""Who calls the daemon, and what they may do."""

from __future__ import annotations

import base64
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from amplifierd.exceptions import ForbiddenError, UnauthorizedError
from amplifierd.limits import Limits

Scope = Literal["read", "run", "admin"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
"""What a caller may do, each including those before it: look, run sessions, change the daemon itself."""

Via = Literal["token", "cookie", "ticket", "proxy", "open", "member"]


@dataclass(frozen=True)
class Caller:
    """The sender of a request. `limits` are the most that a session of theirs may use.

    `token_hash` is that of the token they are known by, empty for who needs none; `login_hash` that of the login of a
    browser, empty for all others.

    `roots` are the directories in or below which its sessions work; without any, sessions work anywhere.

    A session belongs to the `owner` of the caller that created it; only an `admin` sees the sessions of others.
    """

    name: str
    owner: str
    scope: Scope
    via: Via = "token"
    limits: Limits | None = None
    roots: tuple[str, ...] = ()
    token_hash: str = field(default="", repr=False)
    login_hash: str = field(default="", repr=False)

    @property
    def streams_of(self) -> str:
        """The owner whose streams are counted together; empty for an `admin`, who may take every place."""
        return "" if self.scope == "admin" else self.owner

    def may(self, scope: Scope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(scope)

    def check(self, scope: Scope) -> None:
        """Raise unless the caller has a scope.

        Raises:
            ForbiddenError: it has a lesser one.
        """
        if not self.may(scope):
            raise ForbiddenError(
                f"this needs the scope {scope}, and {self.name!r} has {self.scope}",
                hint=f"use a token of scope {scope}: amplifierd token create NAME --scope {scope}",
            )

    def sees(self, owner: str | None) -> bool:
        """True if something that belongs to `owner` is there for this caller; what has no owner is the admin's."""
        return self.scope == "admin" or (owner is not None and owner == self.owner)

    def reaches(self, directory: Path | str) -> bool:
        """True for a directory that lies in or below one of the roots, symbolic links resolved."""
        if not self.roots or "\0" in str(directory):
            return not self.roots
        place = Path(os.path.realpath(Path(directory).expanduser()))
        return any(place.is_relative_to(os.path.realpath(root)) for root in self.roots)


EVERYONE = Caller("local", "local", "admin", via="open")
"""The caller of a daemon that asks for no authentication."""

# A caller that one member has let in, as another one is told of it.


_VIAS: tuple[Via, ...] = get_args(Via)


def carried(caller: Caller | None, address: str) -> str:
    """Return a caller, and where it calls from, as the value of a header; None for a request without one."""
    said: dict[str, Any] = {"address": address}
    if caller is not None:
        said |= {"name": caller.name, "owner": caller.owner, "scope": caller.scope, "via": caller.via}
        said |= {"token_hash": caller.token_hash, "login_hash": caller.login_hash}
        said["roots"] = list(caller.roots)
        said["limits"] = caller.limits.to_json() if caller.limits else None
    return base64.urlsafe_b64encode(json.dumps(said).encode()).decode()


def read_carried(text: str) -> tuple[Caller | None, str]:
    """Return the caller that a header tells of, and where it calls from.

    Raises:
        UnauthorizedError: it cannot be read.
    """
    try:
        said = json.loads(base64.urlsafe_b64decode(text))
        address = str(said["address"])
        if "name" not in said:
            return None, address
        caller = Caller(
            str(said["name"]),
            str(said["owner"]),
            next(scope for scope in SCOPES if scope == said["scope"]),
            via=next(via for via in _VIAS if via == said["via"]),
            limits=Limits.read(said["limits"]) if said["limits"] else None,
            roots=tuple(map(str, said.get("roots") or ())),
            token_hash=str(said["token_hash"]),
            login_hash=str(said["login_hash"]),
        )
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise UnauthorizedError("whom a member asks for cannot be read") from error
    return caller, address
