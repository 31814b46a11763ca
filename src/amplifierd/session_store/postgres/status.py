"""What an operator wants to know of a store in PostgreSQL."""

from __future__ import annotations

import time
from typing import Any

from psycopg import AsyncConnection

from .database import Database
from .schema import OF_A_SESSION

_TABLES = ("sessions", *OF_A_SESSION)
_COUNTS = """
SELECT (SELECT format_version FROM format),
    (SELECT count(*) FROM sessions WHERE deleted_at IS NULL),
    (SELECT count(*) FROM sessions WHERE deleted_at IS NOT NULL),
    (SELECT count(*) FROM holds WHERE holder IS NOT NULL),
    (SELECT count(*) FROM members WHERE state IN ('active', 'draining') AND lease_until > now()),
    (SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name)::bigint,
    current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names')
"""


async def status_of(database: Database) -> dict[str, Any]:
    async def select(connection: AsyncConnection) -> dict[str, Any]:
        row = await (await connection.execute(_COUNTS, [list(_TABLES)])).fetchone()
        assert row is not None
        began = time.perf_counter()
        await connection.execute("SELECT 1")
        took = time.perf_counter() - began
        version, sessions, deleted, held, members, size, server, fsync, commit, standbys = row
        return {
            "store": "postgresql",
            "place": str(database),
            "server": f"PostgreSQL {server}",
            "format": version,
            "sessions": sessions,
            "deleted": deleted,
            "held": held,
            "members": members,
            "bytes": size,
            "round_trip_ms": round(took * 1000, 2),
            "synchronous_standbys": standbys or None,
            "warnings": _warnings(fsync, commit),
        }

    return await database.read(select)


def _warnings(fsync: str, commit: str) -> list[str]:
    """Return what keeps the server from the promise that what was shown is stored."""
    found = []
    if fsync == "off":
        found.append("fsync is off: a power failure can destroy the database")
    if commit in ("off", "local"):
        found.append(f"synchronous_commit is {commit}: what was shown can be lost when the server fails")
    return found
