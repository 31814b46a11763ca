"""Small values that all members of a store share: tokens, logins, keys of requests."""

from __future__ import annotations

from typing import Any, TypeVar

from psycopg import AsyncConnection

from amplifierd.store.json_lines import parse_value

from .database import Database, Work
from .session_rows import column_text, json_text

T = TypeVar("T")

_LIVE = "(expires_at IS NULL OR expires_at > now())"
_UNTIL = "now() + %(seconds)s::float8 * interval '1 s'"
_PUT = f"""
WITH over AS (DELETE FROM shared_values WHERE kind = %(kind)s AND expires_at < now() AND key <> %(key)s)
INSERT INTO shared_values VALUES (%(kind)s, %(key)s, %(value)s, {_UNTIL})
ON CONFLICT (kind, key) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at
"""
_PUT_IF_ABSENT = f"""{_PUT} WHERE NOT {_LIVE.replace("expires_at", "shared_values.expires_at")} RETURNING 1"""


class SharedValues:
    """JSON values by kind and key; one that has expired, by the database's clock, is not there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def get(self, kind: str, key: str) -> Any | None:
        async def select(connection: AsyncConnection) -> Any | None:
            statement = f"SELECT value FROM shared_values WHERE kind = %s AND key = %s AND {_LIVE}"
            row = await (await connection.execute(statement, [column_text(kind), column_text(key)])).fetchone()
            return None if row is None else parse_value(row[0])

        return await self._database.read(select)

    async def list(self, kind: str) -> dict[str, Any]:
        """Return the values of a kind by their keys."""

        async def select(connection: AsyncConnection) -> dict[str, Any]:
            statement = f"SELECT key, value FROM shared_values WHERE kind = %s AND {_LIVE} ORDER BY key"
            rows = await (await connection.execute(statement, [column_text(kind)])).fetchall()
            return {key: parse_value(value) for key, value in rows}

        return await self._database.read(select)

    async def put(self, kind: str, key: str, value: Any, *, expires_in_s: float | None = None) -> None:
        """Store a value, in place of the one that is there."""

        async def insert(connection: AsyncConnection) -> None:
            await connection.execute(_PUT, _values(kind, key, value, expires_in_s))

        await self._change(insert)

    async def put_if_absent(self, kind: str, key: str, value: Any, *, expires_in_s: float | None = None) -> Any | None:
        """Store a value unless there is one; returns the one that is there, None when this one was stored.

        A caller that may be repeated puts something of its own into the value, and recognises it.
        """
        while True:

            async def insert(connection: AsyncConnection) -> bool:
                found = await connection.execute(_PUT_IF_ABSENT, _values(kind, key, value, expires_in_s))
                return bool(found.rowcount)

            if await self._change(insert):
                return None
            if (there := await self.get(kind, key)) is not None:
                return there

    async def delete(self, kind: str, key: str, value: Any | None = None) -> bool:
        """Remove a value, if one is given only that one; False when it was not there."""
        text = None if value is None else json_text(value)

        async def remove(connection: AsyncConnection) -> bool:
            statement = "DELETE FROM shared_values WHERE kind = %s AND key = %s AND value = coalesce(%s, value)"
            return bool((await connection.execute(statement, [column_text(kind), column_text(key), text])).rowcount)

        return await self._change(remove)

    async def _change(self, work: Work[T]) -> T:
        return await self._database.finish(self._database.run(work))


def _values(kind: str, key: str, value: Any, seconds: float | None) -> dict[str, Any]:
    return {"kind": column_text(kind), "key": column_text(key), "value": json_text(value), "seconds": seconds}
