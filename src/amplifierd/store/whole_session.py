"""Everything that the files of a session say, written and read as a whole."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from amplifier_sessions.event_file import EVENT_INDEX, EVENTS, lines_between
from amplifier_sessions.session_directory import METADATA, TRANSCRIPT
from amplifierd.exceptions import SessionError

from .hold import FREE, fence
from .json_lines import encoded, encoded_file, parse_line
from .parts_file import PartsFile, part_pieces
from .protocol import NewSession
from .session_files import GATE, PARTS, PLAN, SessionFiles, archived_plan_name, document_file_name, metadata_text

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


# Messages and events that stay where they are and are read whenever they are needed, a line at a time.


_PIECE = 1 << 18

Line = dict[str, Any]


class StoredLines(Collection[Line]):
    """Lines that can be gone through any number of times; `begin` starts at the first one each time."""

    def __init__(self, begin: Callable[[], Iterable[Line]]) -> None:
        self._begin = begin
        self._count: int | None = None

    @classmethod
    def in_file(cls, path: Path) -> StoredLines:
        """Return the lines that a file has at this moment, also if it is appended to or replaced later."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return cls(lambda: ())
        return cls.in_descriptor(descriptor)

    @classmethod
    def in_descriptor(cls, descriptor: int) -> StoredLines:
        """Return the lines that an open file has at this moment; it is closed when they are not needed any more."""
        end = os.fstat(descriptor).st_size

        def begin() -> Iterator[Line]:
            parsed = (parse_line(line) for _, line in lines_between(descriptor, 0, end))
            return (line for line in parsed if line is not None)

        lines = cls(begin)
        weakref.finalize(lines, os.close, descriptor)
        return lines

    def __iter__(self) -> Iterator[Line]:
        yield from self._begin()  # here, so that this, and with it an open file, is kept as long as it is gone through

    def __len__(self) -> int:
        if self._count is None:
            self._count = sum(1 for _ in self)
        return self._count

    def __contains__(self, line: object) -> bool:
        return any(line == one for one in self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Collection) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment] # as of any list


def encoded_pieces(lines: Iterable[Line]) -> Iterator[bytes]:
    """Yield lines as a file has them, many of them together."""
    waiting: list[bytes] = []
    size = 0
    for line in lines:
        waiting.append(encoded(line))
        size += len(waiting[-1]) + 1
        if size >= _PIECE:
            yield b"\n".join(waiting) + b"\n"
            waiting, size = [], 0
    if waiting:
        yield b"\n".join(waiting) + b"\n"
