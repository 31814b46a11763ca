"""Who calls the daemon, and what they may do."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from amplifierd.exceptions import ForbiddenError
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
        """Say whether something that belongs to `owner` is there for this caller; what has no owner is the admin's."""
        return self.scope == "admin" or (owner is not None and owner == self.owner)

    def reaches(self, directory: Path | str) -> bool:
        """True for a directory that lies in or below one of the roots, symbolic links resolved."""
        if not self.roots or "\0" in str(directory):
            return not self.roots
        place = Path(os.path.realpath(Path(directory).expanduser()))
        return any(place.is_relative_to(os.path.realpath(root)) for root in self.roots)


EVERYONE = Caller("local", "local", "admin", via="open")
"""The caller of a daemon that asks for no authentication."""
