"""A page of the list of sessions, straight from an index that is up to date."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from .index_query import FORMAT_VERSION, connect, format_version, note_seen, seen_at, select_ids, select_page
from .session_directory import INDEX, SESSIONS, SessionSummary, is_session_id, pending_directory, read_summary
from .session_query import SessionQuery, matches, page_of

_SETTLED_NS = 2_000_000_000  # a directory that changed just now may change again within the same tick of its clock


@dataclass(frozen=True)
class SummaryPage:
    """A page of a list, and how many there are in all."""

    sessions: tuple[SessionSummary, ...]
    total: int


def find_page(state: Path, query: SessionQuery, projects: Path | None = None) -> SummaryPage | None:
    """Return a page of the sessions in the state of a home; None when the daemon's library has to look itself.

    That is so while the index lacks something, when a text is looked for, and for metadata of another version. Sessions
    of other applications below `projects` are among them, but for those that were copied into the home.
    """
    first = replace(query, offset=0, limit=query.offset + query.limit)
    others, count = ([], 0) if projects is None else _find_others(state / SESSIONS, first, projects)
    if not count:
        return _find_own(state, query)
    own = _find_own(state, first)
    return own and SummaryPage(tuple(page_of([*own.sessions, *others], query)), own.total + count)


def _find_others(sessions: Path, query: SessionQuery, projects: Path) -> tuple[Sequence[SessionSummary], int]:
    from .foreign_sessions import find_foreign  # for those who have used other applications

    return find_foreign(projects, query, is_copied=lambda session_id: (sessions / session_id).exists())


def _find_own(state: Path, query: SessionQuery) -> SummaryPage | None:
    sessions, index = state / SESSIONS, state / INDEX
    changed = changed_at(sessions)
    if not changed:
        return SummaryPage((), 0)
    if query.text is not None or _is_behind(index):
        return None
    try:
        with closing(connect(index)) as connection:
            if format_version(connection) != FORMAT_VERSION or not _knows_all(connection, sessions, changed):
                return None
            session_ids, total = select_page(connection, query)
    except (sqlite3.Error, OSError):
        return None
    found = [summary for each in session_ids if (summary := read_summary(sessions / each)) and matches(summary, query)]
    return SummaryPage(tuple(found), total) if len(found) == len(session_ids) else None


def changed_at(directory: Path) -> int:
    """Return when a name in a directory last came or went, 0 when there is no directory."""
    try:
        return directory.stat().st_mtime_ns
    except OSError:
        return 0


def is_settled(changed: int) -> bool:
    """True if a change of a directory from now on will be seen by its time; ask before reading the names."""
    return time.time_ns() - changed > _SETTLED_NS


def find_strangers(connection: sqlite3.Connection, sessions: Path) -> set[str]:
    """Return the sessions that only the index knows, or only the directory has."""
    known = select_ids(connection)
    return {
        name
        for name in known.symmetric_difference(os.listdir(sessions))  # noqa: PTH208 - a hundred thousand paths would take longer
        if name in known or (is_session_id(name) and (sessions / name).is_dir())
    }


def _knows_all(connection: sqlite3.Connection, sessions: Path, changed: int) -> bool:
    if seen_at(connection) == changed:
        return True
    settled = is_settled(changed)
    if find_strangers(connection, sessions):
        return False
    if settled:
        with suppress(sqlite3.Error):  # another process writes, or it is read-only
            connection.execute("PRAGMA busy_timeout = 0")
            note_seen(connection, changed)
    return True


def _is_behind(index: Path) -> bool:
    """True if a process has still to index something, or was killed before it could."""
    try:
        with os.scandir(pending_directory(index)) as entries:
            return any(entry.stat().st_size for entry in entries)
    except FileNotFoundError:
        return False
