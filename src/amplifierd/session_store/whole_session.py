"""Everything that the files of a session say, written and read as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator

from amplifier_sessions.event_file import EVENT_INDEX, EVENTS
from amplifier_sessions.session_directory import METADATA, TRANSCRIPT
from amplifierd.exceptions import SessionError

from .hold import FREE, fence
from .json_lines import encoded_file
from .metadata_file import metadata_text
from .parts_file import PartsFile, part_pieces
from .protocol import NewSession
from .session_files import GATE, PARTS, PLAN, SessionFiles, archived_plan_name, document_file_name
from .stored_lines import StoredLines, encoded_pieces

_ATTEMPTS = 10


def read_whole(files: SessionFiles) -> NewSession:
    """Return a session as it was while nothing of it changed.

    Raises:
        SessionNotFoundError: there is no such session.
        SessionError: it is changed all the time, or cannot be read.
    """
    for _ in range(_ATTEMPTS):
        before = _status(files)
        whole = _read(files)
        if _status(files) == before:
            return whole
    raise SessionError(
        f"session {files.session_id!r} is being changed while it is read", hint="try again when it is idle"
    )


def session_contents(new: NewSession) -> dict[str, bytes | Iterator[bytes]]:
    """Return the files of a session by their names, without those that say who holds it; large ones in pieces.

    Raises:
        ValueError: a document or a part is misnamed, or says something that JSON cannot.
    """
    contents: dict[str, bytes | Iterator[bytes]] = {
        METADATA: metadata_text(new.record),
        PLAN: encoded_file(new.plan),
        TRANSCRIPT: encoded_pieces(new.messages),
        EVENTS: encoded_pieces(new.events),
        **{document_file_name(name): encoded_file(value) for name, value in new.documents.items()},
    }
    if new.parts:
        contents[PARTS] = part_pieces(new.parts)
    for number, plan in enumerate(new.archived_plans, start=1):
        contents[archived_plan_name(number)] = encoded_file(plan)
    return contents


def free_contents(new: NewSession) -> dict[str, bytes | Iterator[bytes]]:
    """Return the files of a session that no one holds; raises what `session_contents` raises."""
    return {GATE: fence(0, FREE), **session_contents(new)}


def _read(files: SessionFiles) -> NewSession:
    archived = range(1, files.count_archived_plans() + 1)
    return NewSession(
        files.read_record(),
        files.read_plan(None),
        messages=StoredLines.in_file(files.path(TRANSCRIPT)),
        events=StoredLines.in_file(files.path(EVENTS)),
        documents={name: files.read_document(name) for name in files.document_names()},
        parts=PartsFile(files.path(PARTS)).read_all(),
        archived_plans=[files.read_plan(number) for number in archived],
    )


def _status(files: SessionFiles) -> dict[str, tuple[int, int, int]]:
    """Return what differs when a file of the session was written."""
    files.check_exists()
    with os.scandir(files.directory) as entries:
        found = {entry.name: entry.stat() for entry in entries if entry.is_file() and entry.name != EVENT_INDEX}
    return {name: (status.st_ino, status.st_size, status.st_mtime_ns) for name, status in found.items()}
