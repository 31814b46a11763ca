"""Lists and searches straight from the files: what an index answers faster, and what answers where there is none."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from amplifier_core.exceptions import AmplifierError
from amplifierd.exceptions import SessionNotFoundError

from .json_lines import read_lines
from .protocol import SearchHit, SessionPage, SessionQuery
from .record import SessionRecord, is_session_id
from .search_text import Wanted, message_text
from .session_files import TRANSCRIPT, SessionFiles

logger = logging.getLogger(__name__)

SORT_FIELDS = ("session_id", "name", "status", "created_at", "ended_at", "last_activity_at", "message_count")


def sort_order(query: SessionQuery) -> tuple[str, bool]:
    """Return the field by which a list is sorted, and whether the last comes first.

    Raises:
        ValueError: sessions cannot be sorted by that.
    """
    field = query.sort.removeprefix("-")
    if field not in SORT_FIELDS:
        raise ValueError(f"sessions cannot be sorted by {field!r}; use one of {', '.join(SORT_FIELDS)}")
    return field, query.sort.startswith("-")


def scan_records(sessions: Path) -> Iterator[SessionRecord]:
    """Yield every session that can be read; the others are named in the log."""
    for name in session_names(sessions):
        if (record := find_record(sessions / name)) is not None:
            yield record


def session_names(sessions: Path) -> list[str]:
    """Return the names of the directories of sessions."""
    try:
        with os.scandir(sessions) as entries:
            return [entry.name for entry in entries if is_session_id(entry.name) and entry.is_dir()]
    except FileNotFoundError:
        return []


def find_record(directory: Path) -> SessionRecord | None:
    try:
        return SessionFiles(directory).read_record()
    except SessionNotFoundError:
        return None
    except (AmplifierError, OSError) as error:
        logger.warning("session %r is left out: %s", directory.name, error)
        return None


def scan_page(sessions: Path, query: SessionQuery) -> SessionPage:
    field, last_first = sort_order(query)
    wanted = None if query.text is None else Wanted(query.text)
    found = [
        record
        for record in scan_records(sessions)
        if matches(record, query) and (wanted is None or _find_hit(sessions, record, wanted))
    ]
    found.sort(key=lambda record: (sort_value(record, field), record.session_id), reverse=last_first)
    return SessionPage(tuple(found[query.offset : query.offset + query.limit]), total=len(found))


def scan_hits(sessions: Path, text: str, *, limit: int, owner: str | None) -> tuple[SearchHit, ...]:
    wanted = Wanted(text)
    newest = sorted(scan_records(sessions), key=lambda record: sort_value(record, "last_activity_at"), reverse=True)
    hits: list[SearchHit] = []
    for record in newest:
        if len(hits) == limit:
            break
        if (owner is None or record.owner == owner) and (hit := _find_hit(sessions, record, wanted)):
            hits.append(hit)
    return tuple(hits)


def scan_descendants(sessions: Path, record: SessionRecord) -> tuple[str, ...]:
    tree = [
        (found.session_id, found.parent_session_id)
        for found in scan_records(sessions)
        if found.root_id == record.root_id
    ]
    return below(record.session_id, tree)


def below(session_id: str, tree: list[tuple[str, str | None]]) -> tuple[str, ...]:
    """Return the sessions below one, given each with its parent; parents come before their children."""
    children: dict[str | None, list[str]] = {}
    for child, parent in sorted(tree):
        children.setdefault(parent, []).append(child)
    found: list[str] = []
    waiting = [session_id]
    while waiting:
        generation = [child for parent in waiting for child in children.pop(parent, ())]
        found += generation
        waiting = generation
    return tuple(found)


def matches(record: SessionRecord, query: SessionQuery) -> bool:
    """Say whether a session satisfies every condition of a query but that on its text."""
    exact = ("status", "profile_name", "bundle", "working_dir", "parent_session_id", "owner")
    return (
        all(getattr(query, name) in (None, getattr(record, name)) for name in exact)
        and query.root_session_id in (None, record.root_id)
        and (query.tag is None or query.tag in record.tags)
        and (query.since is None or str(sort_value(record, "last_activity_at")) >= query.since)
        and (not query.roots_only or record.root_id == record.session_id)
    )


def sort_value(record: SessionRecord, field: str) -> str | int:
    """Return what a session is sorted by; one without any activity is as old as its creation."""
    value = getattr(record, field)
    if value is None:
        return record.created_at if field == "last_activity_at" else ""
    return value if isinstance(value, int) else str(value)


def _find_hit(sessions: Path, record: SessionRecord, wanted: Wanted) -> SearchHit | None:
    if record.name and (snippet := wanted.find(record.name)):
        return SearchHit(record, snippet)
    for message in read_lines(sessions / record.session_id / TRANSCRIPT):
        if snippet := wanted.find(message_text(message)):
            return SearchHit(record, snippet, message.get("id"), message.get("turn"))
    return None
