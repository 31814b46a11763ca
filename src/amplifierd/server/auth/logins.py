"""Logins: browsers that were let in and show a cookie for it; `state/logins.json` has them as hashes, private.

A login ends when it is logged out, after a week, or with the token that it was made with, whichever comes first; a
restart of the daemon does not end it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from amplifierd.exceptions import FormatUnsupportedError
from amplifierd.stored_json import StoredFormat

from .callers import Caller
from .tokens import Tokens, secret_hash

LIFETIME_S = 7 * 24 * 3600
_MOST = 1000
_LONGEST = 128
_FORMAT = StoredFormat(version=1, private=True)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Login:
    token_hash: str
    expires_at: float


class Logins:
    """The logins of one home. The daemon that serves it is the only one who changes them."""

    def __init__(self, file: Path, tokens: Tokens) -> None:
        self._file, self._tokens = file, tokens
        self._known: dict[str, _Login] = {}
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Know again who was logged in; if the file cannot be read, all users have to log in again."""
        try:
            stored = (_FORMAT.read(self._file) or {}).get("logins", {})
            self._known = {
                str(digest): _Login(str(each["token_hash"]), float(each["expires_at"]))
                for digest, each in stored.items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, FormatUnsupportedError) as error:
            logger.warning("%s cannot be read (%s): browsers have to log in again", self._file, type(error).__name__)

    async def begin(self, caller: Caller) -> str:
        """Let a browser in as a caller who has a token, and return the secret that it has to show."""
        secret = secrets.token_urlsafe(32)
        self._known[secret_hash(secret)] = _Login(caller.token_hash, time.time() + LIFETIME_S)
        await self._store()
        return secret

    def find(self, secret: str) -> Caller | None:
        """Return who shows a secret; None when the login has ended, or its token was revoked."""
        if len(secret) > _LONGEST or not self.is_known(digest := secret_hash(secret)):
            return None
        caller = self._tokens.find_hash(self._known[digest].token_hash)
        return replace(caller, via="cookie", login_hash=digest) if caller else None

    def is_known(self, digest: str) -> bool:
        """True if the login of a hash has not ended; whether its token has is another question."""
        login = self._known.get(digest)
        return login is not None and login.expires_at > time.time()

    async def end(self, secret: str) -> None:
        """Make a secret worthless at once."""
        if self._known.pop(secret_hash(secret), None) is not None:
            await self._store()

    async def _store(self) -> None:
        """Write down who is logged in; if that fails, logins are lost only at the next start."""
        moment = time.time()
        living = {digest: login for digest, login in self._known.items() if login.expires_at > moment}
        self._known = dict([*living.items()][-_MOST:])
        async with self._writing:
            content = {"logins": {digest: asdict(login) for digest, login in self._known.items()}}
            try:
                await asyncio.to_thread(_FORMAT.write, self._file, content)
            except OSError as error:
                logger.warning("%s cannot be written (%s): logins end with the daemon", self._file, error)
