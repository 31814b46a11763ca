"""Reading sessions; this needs no hold."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from psycopg import AsyncConnection

from amplifier_sessions.event_page import EventPage, EventPlace
from amplifierd.exceptions import MountPlanMissingError
from amplifierd.store.json_lines import parse_value
from amplifierd.store.protocol import Cursor, Message, MessagePage, Place, StoredEvent
from amplifierd.store.record import SessionRecord

from .database import Database
from .held_sessions import not_found
from .session_rows import column_text, parsed, record_of

_LIVE = "SELECT number FROM sessions WHERE session_id = %(session_id)s AND deleted_at IS NULL"
_EVENTS = """
SELECT body FROM events WHERE session = %(number)s AND line > coalesce(
    (SELECT line FROM events WHERE session = %(number)s AND seq <= %(after)s ORDER BY line DESC LIMIT 1), 0
) ORDER BY line
"""
_FOUND_AFTER = """
WITH RECURSIVE search (low, high) AS (
    SELECT 0::bigint, coalesce((SELECT line FROM events WHERE session = %(number)s ORDER BY line DESC LIMIT 1), 0)
    UNION ALL
    SELECT CASE WHEN probe.seq > %(after)s THEN low ELSE middle END,
           CASE WHEN probe.seq > %(after)s THEN probe.line - 1 ELSE high END
    FROM search
    CROSS JOIN LATERAL (SELECT (low + high + 1) / 2 AS middle) AS half
    LEFT JOIN LATERAL (
        SELECT line, seq FROM events WHERE session = %(number)s AND line > low AND line <= middle
        ORDER BY line DESC LIMIT 1
    ) AS probe ON true
    WHERE low < high
)
SELECT max(low) FROM search
"""
_EVENT_NAMES = "SELECT DISTINCT name FROM events WHERE session = %(number)s AND line > %(start)s"
_FITTING = """
FROM events WHERE session = %(number)s AND line > %(start)s
AND (%(names)s::text[] IS NULL OR name = ANY(%(names)s))
AND (%(level)s::text IS NULL OR body::json ->> 'lvl' = %(level)s)
"""
_COUNT = f"SELECT count(*) {_FITTING}"
_EVENT_PAGE = f"SELECT line, body {_FITTING} ORDER BY line LIMIT %(limit)s OFFSET %(offset)s"
_EVENT_BATCH = f"""
SELECT line, body FROM (
    SELECT line, body, sum(octet_length(body)) OVER (ORDER BY line) - octet_length(body) AS before
    FROM (SELECT line, body {_FITTING} ORDER BY line LIMIT %(limit)s) AS next
) AS measured WHERE before < %(most_bytes)s ORDER BY line
"""
_LAST_EVENTS = """
SELECT session_id, body FROM sessions, LATERAL (
    SELECT body FROM events WHERE session = number AND name = ANY(%(names)s) ORDER BY line DESC LIMIT 1
) AS last
WHERE session_id = ANY(%(ids)s) AND deleted_at IS NULL
"""
_LINE_OF = "(SELECT line FROM messages WHERE session = %(number)s AND message_id = %({})s ORDER BY line DESC LIMIT 1)"
_PAGE = f"""
SELECT body FROM messages WHERE session = %(number)s
AND line > coalesce({_LINE_OF.format("after")}, 0) AND line < coalesce({_LINE_OF.format("before")}, 9223372036854775807)
ORDER BY line {{}} LIMIT %(limit)s
"""


class SessionReads:
    """Reads sessions; used in the database's event loop only."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def record(self, session_id: str) -> SessionRecord:
        statement = "SELECT record FROM sessions WHERE session_id = %(session_id)s AND deleted_at IS NULL"
        rows = await self._rows(statement, {"session_id": session_id})
        if not rows:
            raise self._not_found(session_id)
        return record_of(rows[0][0], session_id)

    async def existing(self, session_ids: Sequence[str]) -> frozenset[str]:
        statement = "SELECT session_id FROM sessions WHERE session_id = ANY(%(ids)s) AND deleted_at IS NULL"
        return frozenset(found for (found,) in await self._rows(statement, {"ids": list(session_ids)}))

    async def plan(self, session_id: str, number: int | None) -> dict[str, Any]:
        rows = await self._of(
            session_id, "SELECT body FROM plans WHERE session = %(number)s AND number = %(plan)s", plan=number or 0
        )
        if not rows:
            name = "mount plan" if number is None else f"archived mount plan {number}"
            raise MountPlanMissingError(
                f"session {session_id!r} has no {name}", hint="fork the session into another profile"
            )
        return parsed(rows[0][0])

    async def messages(self, session_id: str) -> list[Message]:
        statement = "SELECT body FROM messages WHERE session = %(number)s ORDER BY line"
        return [parsed(body) for (body,) in await self._of(session_id, statement)]

    async def message_page(self, session_id: str, place: Place) -> MessagePage:
        statement = _PAGE.format("ASC" if place.after else "DESC")
        values = {"after": column_text(place.after), "before": column_text(place.before), "limit": place.limit + 1}
        rows = await self._of(session_id, statement, **values)
        (total,) = (await self._of(session_id, "SELECT count(*) FROM messages WHERE session = %(number)s"))[0]
        found = [parsed(body) for (body,) in rows[: place.limit]]
        return MessagePage(found if place.after else found[::-1], total, len(rows) > place.limit)

    async def events(self, session_id: str, after_seq: int) -> list[StoredEvent]:
        return [parsed(body) for (body,) in await self._of(session_id, _EVENTS, after=after_seq or None)]

    async def event_page(self, session_id: str, place: EventPlace) -> EventPage:
        start = place.start
        if place.after_seq:
            ((found,),) = await self._of(session_id, _FOUND_AFTER, after=place.after_seq)
            start = max(start, found)
        values: dict[str, Any] = {"start": start, "names": None, "level": column_text(place.level)}
        if place.wants is not None:
            known = await self._of(session_id, _EVENT_NAMES, start=start)
            values["names"] = [name for (name,) in known if place.wants(name)]
        if not place.counted:
            values |= {"limit": place.limit, "most_bytes": place.most_bytes}
            rows = await self._of(session_id, _EVENT_BATCH, **values)
            return EventPage([parsed(body) for _, body in rows], 0, bool(rows), rows[-1][0] if rows else start)
        ((total,),) = await self._of(session_id, _COUNT, **values)
        first, last = place.window(total)
        rows = await self._of(session_id, _EVENT_PAGE, **values, limit=last - first, offset=first)
        end = rows[-1][0] if rows else start
        return EventPage([parsed(body) for _, body in rows], total, place.has_more(first, last, total), end)

    async def last_cursor(self, session_id: str) -> Cursor:
        statement = f"SELECT body FROM events WHERE session = ({_LIVE}) ORDER BY line DESC LIMIT 1"
        rows = await self._rows(statement, {"session_id": session_id})
        return Cursor.of_line(parsed(rows[0][0]) if rows else {})

    async def last_events(self, session_ids: Sequence[str], names: Collection[str]) -> dict[str, StoredEvent]:
        rows = await self._rows(
            _LAST_EVENTS, {"ids": list(session_ids), "names": [column_text(name) for name in names]}
        )
        return {session_id: parsed(body) for session_id, body in rows}

    async def document(self, session_id: str, name: str) -> Any | None:
        statement = "SELECT body FROM documents WHERE session = %(number)s AND name = %(name)s"
        rows = await self._of(session_id, statement, name=name)
        return parse_value(rows[0][0]) if rows else None

    async def part(self, session_id: str, digest: str) -> bytes | None:
        statement = "SELECT content FROM parts WHERE session = %(number)s AND digest = %(digest)s"
        rows = await self._of(session_id, statement, digest=column_text(digest))
        return rows[0][0] if rows else None

    async def parts(self, session_id: str) -> dict[str, bytes]:
        statement = "SELECT digest, content FROM parts WHERE session = %(number)s"
        return dict(await self._of(session_id, statement))

    async def _of(self, session_id: str, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return rows of a session, of the one moment at which it was found to be there."""

        async def select(connection: AsyncConnection) -> list[tuple[Any, ...]] | None:
            async with connection.pipeline():
                there = await connection.execute(_LIVE, {"session_id": session_id})
                found = await connection.execute(
                    statement.replace("%(number)s", f"({_LIVE})"),
                    {"session_id": session_id, **values},
                )
                return await found.fetchall() if await there.fetchone() else None

        rows = await self._database.run(select)
        if rows is None:
            raise self._not_found(session_id)
        return rows

    async def _rows(self, statement: str, values: dict[str, Any]) -> list[tuple[Any, ...]]:
        async def select(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(statement, values)).fetchall()

        return await self._database.run(select)

    def _not_found(self, session_id: str) -> Exception:
        return not_found(session_id, str(self._database))
