"""Logins that every member of a cluster knows, kept in its store: a browser may talk to any of them."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from .callers import Caller
from .logins import LIFETIME_S
from .tokens import Tokens, secret_hash

if TYPE_CHECKING:
    from amplifierd.session_store.postgres.shared_values import SharedValues

KIND = "login"
_LONGEST = 128


class SharedLogins:
    """The same as `Logins`. What others did is known after the next `look`."""

    def __init__(self, shared: SharedValues, tokens: Tokens) -> None:
        self._shared, self._tokens = shared, tokens
        self._known: dict[str, str] = {}

    async def look(self) -> None:
        """Learn who is logged in."""
        self._known = {digest: str(login["token_hash"]) for digest, login in (await self._shared.list(KIND)).items()}

    async def begin(self, caller: Caller) -> str:
        """Let a browser in as a caller who has a token, and return the secret that it has to show."""
        secret = secrets.token_urlsafe(32)
        login = {"token_hash": caller.token_hash}
        await self._shared.put(KIND, secret_hash(secret), login, expires_in_s=LIFETIME_S)
        self._known[secret_hash(secret)] = caller.token_hash
        return secret

    def find(self, secret: str) -> Caller | None:
        """Return who shows a secret; None when the login has ended, or its token was revoked."""
        if len(secret) > _LONGEST or not self.is_known(digest := secret_hash(secret)):
            return None
        caller = self._tokens.find_hash(self._known[digest])
        return replace(caller, via="cookie", login_hash=digest) if caller else None

    def is_known(self, digest: str) -> bool:
        """Say whether the login of a hash has not ended; whether its token has is another question."""
        return digest in self._known

    async def end(self, secret: str) -> None:
        """Make a secret worthless."""
        digest = secret_hash(secret)
        self._known.pop(digest, None)
        await self._shared.delete(KIND, digest)
