"""The tokens of a daemon: the first one in `config/token`, named ones hashed in `config/tokens.json`, both private.

Other processes may change the files: they are looked at again whenever they changed.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.store import locked_now, make_directory
from amplifier_foundation.sources.store import now as this_moment
from amplifier_system.files import create_atomically, write_atomically
from amplifierd.exceptions import ForbiddenError, SettingsError, TokenExistsError, TokenNotFoundError
from amplifierd.keys import keep_out_of_git
from amplifierd.limits import Limits
from amplifierd.paths import Paths
from amplifierd.settings import TOKEN_FORM, TOKEN_ITEM
from amplifierd.stored_json import StoredFormat

from .callers import SCOPES, Caller, Scope

FIRST = "default"
"""The name of the token that the first start generates; its scope is admin."""

FORMAT = StoredFormat(version=1, private=True)

_PREFIX = "amp_"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_LOCK_WAIT_S = 30.0
_LONGEST = 512


@dataclass(frozen=True)
class Token:
    """A token as it is known here: its secret is not."""

    name: str
    scope: Scope
    owner: str
    hash: str
    created_at: str | None = None
    limits: Limits | None = None
    roots: tuple[str, ...] = ()

    @cached_property
    def caller(self) -> Caller:
        return Caller(self.name, self.owner, self.scope, limits=self.limits, roots=self.roots, token_hash=self.hash)

    def to_json(self) -> dict[str, Any]:
        """Return what may be shown: everything but the hash."""
        shown = {"name": self.name, "scope": self.scope, "owner": self.owner, "created_at": self.created_at}
        limits = self.limits.to_json() if self.limits else None
        return {**shown, "limits": limits, "roots": list(self.roots)}


class Tokens:
    """The tokens of one home. `configured` are those of the setting `auth.tokens`.

    `others` returns tokens that are kept elsewhere, and count here as well.
    """

    def __init__(self, paths: Paths, configured: Sequence[str] = ()) -> None:
        self._paths, self._configured = paths, tuple(map(parse_configured, configured))
        self.others: Callable[[], tuple[Token, ...]] = tuple
        self._lock = paths.locks / "tokens.lock"
        self._files = (str(paths.token_file), str(paths.tokens_file))
        self._seen: object = None
        self._known: tuple[Token, ...] = ()

    def ensure_first(self) -> None:
        """Generate the first token unless there is one."""
        if not self._paths.token_file.exists():
            keep_out_of_git(self._paths, self._paths.token_file.name)
            text = f"{_new_secret()}\n".encode()
            try:
                create_atomically([self._paths.token_file], text)
            except FileExistsError:
                return  # another process was faster

    def find(self, presented: str) -> Caller | None:
        """Return whose token it is; each known token is compared, in constant time."""
        if not presented or len(presented) > _LONGEST:
            return None
        return self.find_hash(secret_hash(presented))

    def find_hash(self, digest: str) -> Caller | None:
        """Return whose token has a hash, None when it was revoked."""
        matching = [token for token in self.list() if hmac.compare_digest(token.hash, digest)]
        return matching[0].caller if matching else None

    def list(self) -> tuple[Token, ...]:
        """Return all tokens, the first one first.

        Raises:
            SettingsError: a file cannot be read.
            FormatUnsupportedError: a newer version wrote the file.
        """
        return (*self.own(), *self.others())

    def own(self) -> tuple[Token, ...]:
        """Return the tokens that are kept in the files and settings of this home.

        Raises:
            SettingsError: a file cannot be read.
            FormatUnsupportedError: a newer version wrote the file.
        """
        seen = [*map(_stamp, self._files)]
        if seen != self._seen:
            first = _read_first(self._paths.token_file)
            self._known = (*first, *self._configured, *_read_named(self._paths.tokens_file))
            self._seen = seen
        return self._known

    def create(
        self,
        name: str,
        scope: Scope,
        *,
        owner: str | None = None,
        limits: Limits | None = None,
        roots: Sequence[str] = (),
    ) -> tuple[Token, str]:
        """Make a token, and return it with its secret, which is nowhere to be found afterwards.

        Raises:
            SettingsError: the name or the owner cannot be one.
            TokenExistsError: the name is taken.
        """
        token, secret = new_token(name, scope, owner=owner, limits=limits, roots=roots)

        def add(named: tuple[Token, ...]) -> tuple[Token, ...]:
            if name in {known.name for known in self.list()} | {FIRST}:
                raise TokenExistsError(f"There is already a token {name!r}", hint="revoke it, or choose another name")
            return (*named, token)

        self._change(add)
        return token, secret

    def revoke(self, name: str) -> None:
        """Make a token worthless at once; the first one is replaced by a new secret.

        Raises:
            TokenNotFoundError: there is none of that name.
            ForbiddenError: it is one of the settings.
        """
        if name == FIRST:
            make_directory(self._paths.config)
            write_atomically(self._paths.token_file, f"{_new_secret()}\n".encode(), private=True)
            return
        if name in {token.name for token in self._configured}:
            raise ForbiddenError(f"The token {name!r} is set in auth.tokens", hint="take it out there, then restart")

        def remove(named: tuple[Token, ...]) -> tuple[Token, ...]:
            left = tuple(token for token in named if token.name != name)
            if left == named:
                known = ", ".join(token.name for token in self.list())
                raise TokenNotFoundError(f"There is no token {name!r}", hint=f"there are: {known}")
            return left

        self._change(remove)

    def _change(self, change: Callable[[tuple[Token, ...]], tuple[Token, ...]]) -> None:
        file = self._paths.tokens_file
        with locked_now(self._lock, wait_s=_LOCK_WAIT_S) as held:
            if not held:
                raise SettingsError(f"{file} is being changed by another process")
            tokens = change(_read_named(file))
            keep_out_of_git(self._paths, file.name)
            FORMAT.write(file, {"tokens": [{**token.to_json(), "hash": token.hash} for token in tokens]})


def new_token(
    name: str, scope: Scope, *, owner: str | None = None, limits: Limits | None = None, roots: Sequence[str] = ()
) -> tuple[Token, str]:
    """Return a token that is kept nowhere yet, and its secret.

    Raises:
        SettingsError: the name or the owner cannot be one, a root is not absolute, or an admin is to have roots.
    """
    for text in (name, owner or name):
        if not _NAME.fullmatch(text):
            hint = "a name begins with a letter or digit and has at most 64 of letters, digits and . _ -"
            raise SettingsError(f"{text!r} cannot name a token", hint=hint)
    if roots and scope == "admin":
        raise SettingsError("an admin cannot be bound to directories", hint="take the scope run or read")
    for root in roots:
        if not Path(root).expanduser().is_absolute() or "\0" in root:
            raise SettingsError(f"the root {root!r} is not an absolute path", hint="write the whole path")
    bound = tuple(os.path.normpath(Path(root).expanduser()) for root in roots)
    secret = _new_secret()
    return Token(name, scope, owner or name, secret_hash(secret), this_moment(), limits, bound), secret


def read_token(stored: Mapping[str, Any]) -> Token:
    """Return a token as it was stored.

    Raises `ValueError`, `KeyError`, `TypeError` or `StopIteration` for what is none.
    """
    return Token(
        name=str(stored["name"]),
        scope=next(scope for scope in SCOPES if scope == stored["scope"]),
        owner=str(stored["owner"]),
        hash=str(stored["hash"]),
        created_at=stored.get("created_at"),
        limits=Limits.read(stored["limits"]) if stored.get("limits") else None,
        roots=tuple(map(str, stored.get("roots") or ())),
    )


def parse_configured(text: str) -> Token:
    """Return the token that an item of `auth.tokens` describes: `name:scope:sha256:<hex>`.

    Raises:
        SettingsError: it is written differently.
    """
    found = TOKEN_ITEM.fullmatch(text)
    if found is None:
        raise SettingsError("auth.tokens: an item cannot be read", hint=f"write {TOKEN_FORM}")
    scope = next(scope for scope in SCOPES if scope == found["scope"])
    return Token(found["name"], scope, found["name"], found["hash"])


def _read_first(file: Path) -> tuple[Token, ...]:
    try:
        secret = file.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{file} cannot be read: {type(error).__name__}") from None
    return (Token(FIRST, "admin", FIRST, secret_hash(secret)),) if secret else ()


def _read_named(file: Path) -> tuple[Token, ...]:
    try:
        stored = (FORMAT.read(file) or {}).get("tokens", [])
        return tuple(map(read_token, stored))
    except (ValueError, KeyError, TypeError, StopIteration) as error:
        raise SettingsError(f"{file} is damaged ({type(error).__name__})", hint="repair or remove it") from error


def secret_hash(secret: str) -> str:
    """Return what is stored: a secret has 256 random bits, so one round suffices."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _new_secret() -> str:
    return _PREFIX + secrets.token_urlsafe(32)


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)  # noqa: PTH116 - asked for every request
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size
