"""The tables of the engine, in the schema of the store, and how those of an older version become the present ones.

The engine's package brings what makes them, and what changes them from version to version: `pre` while programs of the
version before are at work, `post` when none is any more.
"""

from __future__ import annotations

from pathlib import Path

from procrastinate.schema import SchemaManager
from psycopg import AsyncConnection, sql

from amplifier_core import __version__

_OTHERS = """
SELECT FROM members WHERE state IN ('active', 'draining') AND lease_until > now() AND version <> %s LIMIT 1
"""


async def prepare(connection: AsyncConnection) -> None:
    """Make sure that the engine's tables are there in the form that its installed version needs."""
    if not await _missing(connection):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext(current_schema() || ':jobs'))")
        missing = await _missing(connection)
        row = await (await connection.execute("SELECT to_regclass('procrastinate_jobs') IS NULL")).fetchone()
        if row is not None and row[0]:
            await connection.execute(SchemaManager.get_schema())
        else:
            is_alone = (await connection.execute(_OTHERS, [__version__])).rowcount == 0
            missing = [path for path in missing if is_alone or "_post_" not in path.name]
            for path in missing:
                await connection.execute(sql.SQL(path.read_text()))
        for path in missing:
            await connection.execute("INSERT INTO job_migrations VALUES (%s)", [path.name])


async def _missing(connection: AsyncConnection) -> list[Path]:
    """Return the changes that were not made yet, in order."""
    rows = await (await connection.execute("SELECT name FROM job_migrations")).fetchall()
    made = {row[0] for row in rows}
    return [path for path in _known() if path.name not in made]


def _known() -> list[Path]:
    return sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
