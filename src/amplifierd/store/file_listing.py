"""Lists and searches straight from the files: what an index answers faster, and what answers where there is none."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path

from amplifier_core.exceptions import AmplifierError
from amplifier_sessions.index_query import Wanted, message_text
from amplifier_sessions.session_directory import TRANSCRIPT, is_session_id
from amplifier_sessions.session_query import SessionQuery, matches, page_of, sort_value
from amplifierd.exceptions import SessionNotFoundError

from .json_lines import read_lines
from .protocol import SearchHit, SessionPage
from .record import SessionRecord
from .session_files import SessionFiles

logger = logging.getLogger(__name__)


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
    wanted = None if query.text is None else Wanted(query.text)
    found = [
        record
        for record in scan_records(sessions)
        if matches(record, query) and (wanted is None or _find_hit(sessions, record, wanted))
    ]
    return SessionPage(tuple(page_of(found, query)), total=len(found))


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


def _find_hit(sessions: Path, record: SessionRecord, wanted: Wanted) -> SearchHit | None:
    if record.name and (snippet := wanted.find(record.name)):
        return SearchHit(record, snippet)
    for message in read_lines(sessions / record.session_id / TRANSCRIPT):
        if snippet := wanted.find(message_text(message)):
            return SearchHit(record, snippet, message.get("id"), message.get("turn"))
    return None
