"""Where sessions are kept: in the files of a home, or in a PostgreSQL database."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from .exceptions import SettingsError

FILES = "files"
MASK = "***"

_SCHEMES = ("postgresql", "postgres")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,62}")
_USUAL = "PGPASSWORD"
_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_DEFAULT_SCHEMA = "amplifier"
_HINT = "write files, or postgresql://user@host/database"


@dataclass(frozen=True)
class StoreAddress:
    """`files`, or `postgresql://[user[:password]@]host[:port][,…]/database[?schema=…&…]`.

    What it shows of itself has no password. A password `${NAME}` stands for a variable of the environment, or for a
    secret that the key store keeps. `schema` is the part of the database that the sessions are in; everything else
    behind `?` is passed to PostgreSQL's client library.
    """

    secret_text: str = field(default=FILES, repr=False)

    @classmethod
    def parse(cls, text: Any) -> StoreAddress:
        """Return the address that a text names.

        Raises:
            ValueError: it names none; the message has nothing of the text in it.
        """
        if isinstance(text, StoreAddress):
            return text
        if not isinstance(text, str):
            raise ValueError(f"not an address of a store; {_HINT}")  # noqa: TRY004 - pydantic takes ValueError only
        if text == FILES:
            return cls()
        try:
            scheme = urlsplit(text).scheme
        except ValueError:
            raise ValueError(f"not an address of a store; {_HINT}") from None
        if scheme not in _SCHEMES:
            raise ValueError(f"sessions cannot be kept there; {_HINT}")
        found = cls(text)
        if found.password == MASK:
            raise ValueError(f"the password is {MASK!r}, as it is shown; write the real one, or none")
        if not _SCHEMA.fullmatch(found.schema):
            raise ValueError("the schema of a store is a name of lower-case letters, digits and _")
        return found

    @property
    def is_files(self) -> bool:
        return self.secret_text == FILES

    @property
    def schema(self) -> str:
        return dict(parse_qsl(urlsplit(self.secret_text).query)).get("schema", _DEFAULT_SCHEMA)

    @property
    def password(self) -> str | None:
        """The password that stands in the address, or behind its `?`."""
        parts = urlsplit(self.secret_text)
        _, has_one, password = parts.netloc.rpartition("@")[0].partition(":")
        return unquote(password) if has_one else dict(parse_qsl(parts.query)).get("password")

    def resolved(self, find: Callable[[str], str | None]) -> StoreAddress:
        """Return the address with its password: where it has none `PGPASSWORD`, where it names one what `find` finds.

        Raises:
            SettingsError: there is nothing of that name.
        """
        password = self.password
        if self.is_files or password is None:
            found = None if self.is_files else find(_USUAL)
            return self if found is None else self.with_password(found)
        if (named := _NAMED.fullmatch(password)) is None:
            return self
        found = find(named[1])
        if found is None:
            raise SettingsError(
                f"store: the password is {password}, and there is no variable or secret of that name",
                hint="set the variable, or write another password",
            )
        return self.with_password(found)

    def with_password(self, password: str) -> StoreAddress:
        """Return the address with another password."""
        between = "&" if urlsplit(self.place).query else "?"
        return StoreAddress(f"{self.place}{between}{urlencode({'password': password})}")

    @property
    def place(self) -> str:
        """The address without any password: two of one place are the same."""
        if self.is_files:
            return FILES
        parts = urlsplit(self.secret_text)
        person, at, place = parts.netloc.rpartition("@")
        query = [pair for pair in parse_qsl(parts.query, keep_blank_values=True) if pair[0] != "password"]
        netloc = f"{person.partition(':')[0]}{at}{place}"
        return _joined(parts._replace(netloc=netloc), urlencode(query))

    @property
    def is_reference(self) -> bool:
        """True if the password names a variable or a secret."""
        return self.password is not None and _NAMED.fullmatch(self.password) is not None

    def with_reference(self, name: str) -> StoreAddress:
        """Return the address with the name of its password."""
        return self.with_password(f"${{{name}}}")

    @property
    def conninfo(self) -> str:
        """The address as PostgreSQL's client library takes it."""
        parts = urlsplit(self.secret_text)
        rest = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "schema"]
        return _joined(parts, urlencode(rest))

    def __str__(self) -> str:
        if self.is_files:
            return FILES
        parts = urlsplit(self.secret_text)
        person, at, place = parts.netloc.rpartition("@")
        user, has_password, _ = person.partition(":")
        query = [
            (name, MASK if name in ("password", "sslpassword") else value) for name, value in parse_qsl(parts.query)
        ]
        netloc = f"{user}{f':{MASK}' if has_password else ''}{at}{place}"
        return _joined(parts._replace(netloc=netloc), urlencode(query, safe="*/:,"))


def _joined(parts: SplitResult, query: str) -> str:
    return f"{parts.scheme}://{parts.netloc}{parts.path}{f'?{query}' if query else ''}"
