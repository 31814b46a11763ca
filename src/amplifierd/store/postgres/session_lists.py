"""Lists of sessions, and searches in what was said in them, with PostgreSQL's own full-text indexes."""

from __future__ import annotations

from typing import Any

from psycopg import AsyncConnection

from amplifier_sessions.index_query import Wanted, message_text
from amplifier_sessions.session_query import SessionQuery, sort_order
from amplifierd.store.file_listing import below
from amplifierd.store.protocol import SearchHit, SessionPage

from .database import Database
from .held_sessions import not_found
from .schema import FILTERED_COLUMNS, WORDS_OF
from .session_rows import column_text, parsed, record_of, search_conditions

_TREE = """
SELECT session_id, parent_session_id FROM sessions WHERE deleted_at IS NULL AND root_session_id = (
    SELECT root_session_id FROM sessions WHERE session_id = %s AND deleted_at IS NULL
)
"""
_HITS = """
WITH found AS (
    SELECT session, min(line) AS line FROM messages WHERE said IS NOT NULL AND {said} GROUP BY session
), named AS (
    SELECT number AS session FROM sessions WHERE name_said IS NOT NULL AND deleted_at IS NULL AND {named}
)
SELECT session_id, record, named.session IS NOT NULL,
    (SELECT body FROM messages WHERE messages.session = number AND messages.line = found.line)
FROM found FULL JOIN named USING (session) JOIN sessions ON number = session
WHERE deleted_at IS NULL AND (%(owner)s::text IS NULL OR owner = %(owner)s)
ORDER BY last_activity_at DESC, session_id DESC LIMIT %(limit)s
"""


class SessionLists:
    """Lists sessions; used in the database's event loop only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def page(self, query: SessionQuery) -> SessionPage:
        field, last_first = sort_order(query)
        conditions, values = _conditions(query)
        if conditions is None:
            return SessionPage((), total=0)
        order = f"{field} DESC, session_id DESC" if last_first else f"{field}, session_id"
        where = " AND ".join(conditions)
        page = (
            f"SELECT session_id, record FROM sessions WHERE {where} ORDER BY {order} LIMIT %(limit)s OFFSET %(offset)s"
        )

        async def select(connection: AsyncConnection) -> SessionPage:
            async with connection.pipeline():
                rows = await connection.execute(page, values)
                count = await connection.execute(f"SELECT count(*) FROM sessions WHERE {where}", values)
            found = tuple(record_of(body, session_id) for session_id, body in await rows.fetchall())
            (total,) = await count.fetchone() or (0,)
            return SessionPage(found, total)

        return await self._database.run(select)

    async def hits(self, text: str, *, limit: int, owner: str | None) -> tuple[SearchHit, ...]:
        wanted = Wanted(text)
        said = search_conditions(wanted, "said", WORDS_OF)
        named = search_conditions(wanted, "name_said", WORDS_OF)
        if said is None or named is None:
            return ()
        values = {**said[1], "owner": column_text(owner), "limit": limit}

        async def select(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            statement = _HITS.format(said=said[0], named=named[0])
            return await (await connection.execute(statement, values)).fetchall()

        return tuple(_hit(wanted, *row) for row in await self._database.run(select))

    async def descendants(self, session_id: str) -> tuple[str, ...]:
        async def select(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_TREE, [session_id])).fetchall()

        tree = await self._database.run(select)
        if not tree:
            raise not_found(session_id, str(self._database))
        return below(session_id, [(child, parent) for child, parent in tree])


def _conditions(query: SessionQuery) -> tuple[list[str] | None, dict[str, Any]]:
    """Return what sessions must satisfy, with its values; None when none can."""
    given = {name: value for name in FILTERED_COLUMNS if (value := getattr(query, name)) is not None}
    conditions = ["deleted_at IS NULL", *(f"{name} = %({name})s" for name in given)]
    values: dict[str, Any] = {name: column_text(value) for name, value in given.items()}
    if query.tag is not None:
        conditions.append("tags @> ARRAY[%(tag)s::text]")
        values["tag"] = column_text(query.tag)
    if query.since is not None:
        conditions.append("last_activity_at >= %(since)s")
        values["since"] = column_text(query.since)
    if query.roots_only:
        conditions.append("is_root")
    if query.text is not None:
        wanted = Wanted(query.text)
        said = search_conditions(wanted, "said", WORDS_OF)
        named = search_conditions(wanted, "name_said", WORDS_OF)
        if said is None or named is None:
            return None, {}
        conditions.append(
            f"(number IN (SELECT session FROM messages WHERE said IS NOT NULL AND {said[0]})"
            f" OR name_said IS NOT NULL AND {named[0]})"
        )
        values |= said[1]
    return conditions, {**values, "limit": query.limit, "offset": query.offset}


def _hit(wanted: Wanted, session_id: str, body: str, is_named: bool, message: str | None) -> SearchHit:
    record = record_of(body, session_id)
    if is_named or message is None:
        return SearchHit(record, wanted.snippet(record.name or ""))
    found = parsed(message)
    return SearchHit(record, wanted.snippet(message_text(found)), found.get("id"), found.get("turn"))
