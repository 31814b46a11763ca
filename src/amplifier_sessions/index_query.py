"""Questions to the index: a page of a list, the places where a text was found, a session's tree."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from itertools import islice

from .index_schema import TAG_COLUMNS, owner_word, place, session_number, storable
from .search_text import Wanted
from .session_query import SessionQuery, sort_order

_EXACT = ("status", "profile_name", "bundle", "working_dir", "parent_session_id", "root_session_id", "owner")
_TAGGED = "id IN (SELECT id FROM tags WHERE tag = ?)"
_HAS_TAG = "tag = ?"
_SAYING = f"id IN (SELECT DISTINCT rowid >> {place(1, None).bit_length() - 1} FROM texts WHERE texts MATCH ?)"
_BEFORE = "SELECT rowid FROM texts WHERE texts MATCH ? AND rowid < ? ORDER BY rowid DESC"
_FIRST = "SELECT rowid FROM texts WHERE texts MATCH ? AND rowid >= ? ORDER BY rowid LIMIT 1"
_LAST_PLACE = (1 << 63) - 1
_IN_A_ROW = 100  # places in one session, before the rest of them is skipped


def select_page(connection: sqlite3.Connection, query: SessionQuery) -> tuple[list[str], int]:
    """Return the ids on a page, and how many sessions the whole list has."""
    field, last_first = sort_order(query)
    conditions = _conditions(query)
    if conditions is None:
        return [], 0
    asked = {field, *(condition.split()[0] for condition in conditions)}
    if query.tag is not None and asked <= {"id", *TAG_COLUMNS} and query.text is None:
        table, conditions = "tags", {_HAS_TAG if name == _TAGGED else name: value for name, value in conditions.items()}
    else:
        table = "sessions"
    order = f"{field} DESC, session_id DESC" if last_first else f"{field}, session_id"
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    values = [storable(value) if isinstance(value, str) else value for value in conditions.values()]
    rows = connection.execute(
        f"SELECT session_id FROM {table} {where} ORDER BY {order} LIMIT ? OFFSET ?",  # our own words only
        [*values, query.limit, query.offset],
    )
    ids = [session_id for (session_id,) in rows]
    (total,) = connection.execute(f"SELECT count(*) FROM {table} {where}", values).fetchone()
    return ids, total


def select_places(
    connection: sqlite3.Connection, wanted: Wanted, *, owner: str | None, limit: int
) -> list[tuple[str, int]]:
    """Return sessions in which a text was found, each with the first place; those active last come first.

    Of very many that have it, `limit` of those that were indexed last are looked at.
    """
    match = _match(wanted, owner)
    if match is None:
        return []
    found = list(islice(_live(connection, match), limit))
    found.sort(key=lambda item: (item[0], item[1]), reverse=True)
    return [(session_id, first) for _, session_id, first in found]


def select_tree(connection: sqlite3.Connection, root_id: str) -> list[tuple[str, str | None]]:
    """Return the sessions of a tree, each with its parent."""
    return connection.execute(
        "SELECT session_id, parent_session_id FROM sessions WHERE root_session_id = ?", (root_id,)
    ).fetchall()


def select_ids(connection: sqlite3.Connection) -> set[str]:
    """Return every session that the index knows, those included that cannot be read."""
    rows = connection.execute("SELECT session_id FROM sessions UNION ALL SELECT session_id FROM unreadable")
    return {session_id for (session_id,) in rows}


def _conditions(query: SessionQuery) -> dict[str, str | int] | None:
    """Return what rows must satisfy, each condition with its value; None when no row can."""
    given: dict[str, str | int] = {
        f"{name} = ?": value for name in _EXACT if (value := getattr(query, name)) is not None
    }
    if query.tag is not None:
        given[_TAGGED] = query.tag
    if query.since is not None:
        given["last_activity_at >= ?"] = query.since
    if query.roots_only:
        given["is_root = ?"] = 1
    if query.text is not None:
        match = _match(Wanted(query.text), None)
        if match is None:
            return None
        given[_SAYING] = match
    return given


def _match(wanted: Wanted, owner: str | None) -> str | None:
    """Return a text in the full-text syntax, every word of it quoted; None when there is no word in it."""
    if not wanted.phrases:
        return None
    phrases = " AND ".join(f'"{" ".join(phrase)}"' for phrase in wanted.phrases)
    return f"text : ({phrases})" + ("" if owner is None else f" AND owner : {owner_word(owner)}")


def _live(connection: sqlite3.Connection, match: str) -> Iterator[tuple[str, str, int]]:
    """Yield last activity, id and first place of the sessions in which something was found."""
    for number, first in _first_places(connection, match):
        row = connection.execute("SELECT last_activity_at, session_id FROM sessions WHERE id = ?", (number,)).fetchone()
        if row is not None:
            yield row[0], row[1], first


def _first_places(connection: sqlite3.Connection, match: str) -> Iterator[tuple[int, int]]:
    """Yield the numbers of sessions with the first place in each, the highest number first."""
    end = _LAST_PLACE
    while True:
        number, first, in_a_row = 0, 0, 0
        for (found,) in connection.execute(_BEFORE, (match, end)):
            if session_number(found) != number:
                if number:
                    yield number, first
                number, in_a_row = session_number(found), 0
            first = found
            in_a_row += 1
            if in_a_row > _IN_A_ROW:
                break
        else:
            if number:
                yield number, first
            return
        end = place(number, None)
        yield number, connection.execute(_FIRST, (match, end)).fetchone()[0]
