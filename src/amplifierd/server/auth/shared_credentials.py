"""Tokens that every member of a cluster knows: named ones, kept in the store, and those that each home has of its own.

The secret of a home's own token never leaves its machine. Its daemon tells the others the hash, again and again; they
forget it a day after they last heard of that home.
"""

from __future__ import annotations

import hashlib
import secrets
import socket
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifierd.exceptions import TokenExistsError
from amplifierd.limits import Limits

from .callers import Caller, Scope
from .logins import LIFETIME_S
from .tokens import Token, Tokens, new_token, read_token, secret_hash

if TYPE_CHECKING:
    from amplifierd.store.postgres.shared_values import SharedValues

NAMED, OF_HOMES = "token", "home-tokens"
_KNOWN_FOR_S = 24 * 3600.0
_AGAIN_S = 3600.0


class SharedTokens:
    """The tokens of a cluster as one home sees them; `own` are those that are kept in its files and settings."""

    def __init__(self, shared: SharedValues, own: Tokens, home: Path) -> None:
        self._shared, self._own = shared, own
        self._home = f"{socket.gethostname()}-{hashlib.sha256(str(home).encode()).hexdigest()[:12]}"
        self._told: tuple[Token, ...] = ()
        self._told_at = 0.0
        self.others: tuple[Token, ...] = ()

    async def look(self) -> None:
        """Learn what others know, and tell them what is new here."""
        await self._tell()
        named = await self._shared.list(NAMED)
        homes = await self._shared.list(OF_HOMES)
        of_homes = [each for home, tokens in homes.items() if home != self._home for each in tokens]
        self.others = tuple(map(read_token, (*named.values(), *of_homes)))

    async def _tell(self) -> None:
        own = self._own.own()
        if own != self._told or time.monotonic() - self._told_at > _AGAIN_S:
            await self._shared.put(OF_HOMES, self._home, [_stored(token) for token in own], expires_in_s=_KNOWN_FOR_S)
            self._told, self._told_at = own, time.monotonic()

    async def create(
        self,
        name: str,
        scope: Scope,
        *,
        owner: str | None = None,
        limits: Limits | None = None,
        roots: Sequence[str] = (),
    ) -> tuple[Token, str]:
        """Make a token that every member knows, and return it with its secret.

        Raises:
            SettingsError: the name or the owner cannot be one.
            TokenExistsError: the name is taken.
        """
        token, secret = new_token(name, scope, owner=owner, limits=limits, roots=roots)
        is_own = name in {known.name for known in self._own.own()}
        if is_own or await self._shared.put_if_absent(NAMED, name, _stored(token)) is not None:
            raise TokenExistsError(f"There is already a token {name!r}", hint="revoke it, or choose another name")
        await self.look()
        return token, secret

    async def revoke(self, name: str) -> bool:
        """Make a named token worthless for every member; False if the cluster has none of that name."""
        was_there = await self._shared.delete(NAMED, name)
        await self.look()
        return was_there


def _stored(token: Token) -> dict[str, Any]:
    return {**token.to_json(), "hash": token.hash}


LOGIN_KIND = "login"
_LONGEST = 128


class SharedLogins:
    """The same as `Logins`. What others did is known after the next `look`."""

    def __init__(self, shared: SharedValues, tokens: Tokens) -> None:
        self._shared, self._tokens = shared, tokens
        self._known: dict[str, str] = {}

    async def look(self) -> None:
        """Learn who is logged in."""
        logins = await self._shared.list(LOGIN_KIND)
        self._known = {digest: str(login["token_hash"]) for digest, login in logins.items()}

    async def begin(self, caller: Caller) -> str:
        """Let a browser in as a caller who has a token, and return the secret that it has to show."""
        secret = secrets.token_urlsafe(32)
        login = {"token_hash": caller.token_hash}
        await self._shared.put(LOGIN_KIND, secret_hash(secret), login, expires_in_s=LIFETIME_S)
        self._known[secret_hash(secret)] = caller.token_hash
        return secret

    def find(self, secret: str) -> Caller | None:
        """Return who shows a secret; None when the login has ended, or its token was revoked."""
        if len(secret) > _LONGEST or not self.is_known(digest := secret_hash(secret)):
            return None
        caller = self._tokens.find_hash(self._known[digest])
        return replace(caller, via="cookie", login_hash=digest) if caller else None

    def is_known(self, digest: str) -> bool:
        """True if the login of a hash has not ended; whether its token has is another question."""
        return digest in self._known

    async def end(self, secret: str) -> None:
        """Make a secret worthless."""
        digest = secret_hash(secret)
        self._known.pop(digest, None)
        await self._shared.delete(LOGIN_KIND, digest)
