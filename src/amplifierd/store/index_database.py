"""The file `index.db`: opened, checked, and built again from the sessions when nothing can be done with it.

Several processes use it at once. A writer has a shared lock on `index.lock`, a process that rebuilds it an exclusive
one, and the new file takes the place of the old in one step; the others notice that theirs is no longer there.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from amplifier_foundation.sources import Progress, ProgressEvent
from amplifier_foundation.sources.resolved import Phase, report
from amplifier_foundation.sources.store import make_directory
from amplifier_sessions.index_query import (
    COLUMNS,
    FORMAT_VERSION,
    TAG_COLUMNS,
    connect,
    create,
    finish,
    format_version,
    has_full_text,
    indexed_text,
    message_text,
    note_seen,
    owner_word,
    place,
    storable,
)
from amplifier_sessions.session_directory import METADATA, TRANSCRIPT
from amplifier_sessions.session_query import sort_value
from amplifier_system.files import PRIVATE
from amplifier_system.threads import Stop
from amplifierd.exceptions import FormatUnsupportedError

from .file_listing import find_record, session_names
from .json_lines import parse_line, whole_lines
from .record import SessionRecord
from .session_files import SessionFiles

logger = logging.getLogger(__name__)

_BATCH = 500
_BUILDING_BATCH = 5_000  # no one else waits for the file
_REPORT_INTERVAL_S = 0.5
_LEAST_GARBAGE = 50_000
_UNFINISHED = ".new"


class IndexUnusableError(Exception):
    """The index can neither be used nor made at this moment; the sessions themselves can be read."""


class IndexDatabase:
    """A connection to the index, made when it is needed; one thread at a time uses it."""

    def __init__(self, path: Path, sessions: Path, progress: Progress | None) -> None:
        self._path = path
        self._sessions = sessions
        self._progress = progress
        self._turn = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._inode = 0

    @contextmanager
    def reading(self, stop: Stop) -> Iterator[sqlite3.Connection]:
        """Yield a connection to read from; the index is built first if need be.

        Raises:
            IndexUnusableError: there is none, or it cannot be read.
        """
        with self._turn, self._translated():
            yield self._open(stop)

    def refresh(self, session_ids: Iterable[str], stop: Stop) -> None:
        """Make the index say what the files of these sessions say.

        Raises:
            IndexUnusableError: it cannot be written; what it says of other sessions is still right.
        """
        waiting = sorted(session_ids)
        for start in range(0, len(waiting), _BATCH):
            stop.check()
            with self._turn, self._translated(), self._open_for_writing(stop) as connection:
                _write(connection, (self._sessions / name for name in waiting[start : start + _BATCH]))

    def note_seen(self, changed: int, stop: Stop) -> None:
        """Remember that the index knew every session when their directory had this time.

        Raises:
            IndexUnusableError: it cannot be written.
        """
        with self._turn, self._translated(), self._open_for_writing(stop) as connection:
            note_seen(connection, changed)

    def close(self) -> None:
        with self._turn:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
            self._connection, self._inode = None, 0

    @contextmanager
    def _open_for_writing(self, stop: Stop) -> Iterator[sqlite3.Connection]:
        while True:
            connection = self._open(stop)
            with self._locked(fcntl.LOCK_SH):
                if self._is_in_place():  # no one built another since we opened it
                    yield connection
                    return

    def _open(self, stop: Stop) -> sqlite3.Connection:
        if self._connection is None or not self._is_in_place():
            self.close()
            if not self._is_usable():
                self._build(stop)
            self._connection = connect(self._path)
            self._inode = self._path.stat().st_ino
        return self._connection

    def _is_in_place(self) -> bool:
        try:
            return self._path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _is_usable(self) -> bool:
        """True if the file is an index of this version without too much in it that is of no use.

        Raises:
            FormatUnsupportedError: a newer version made it.
        """
        if not self._path.exists():
            return False
        try:
            with closing(connect(self._path)) as connection:
                version = _checked_version(self._path, connection)
                return version == FORMAT_VERSION and not _is_full_of_garbage(connection)
        except sqlite3.DatabaseError as error:
            if not _is_damage(error):
                raise
            logger.warning("the session index %s cannot be read (%s) and is built again", self._path, error)
            return False

    def _build(self, stop: Stop) -> None:
        """Build the index from the sessions, unless another process just did."""
        make_directory(self._path.parent)
        with self._locked(fcntl.LOCK_EX):
            if self._is_usable():
                return
            for leftover in self._path.parent.glob(f"{self._path.name}.*{_UNFINISHED}*"):
                leftover.unlink(missing_ok=True)
            unfinished = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}{_UNFINISHED}")
            try:
                os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))
                self._fill(unfinished, stop)
                for suffix in ("-wal", "-shm"):  # of the file that is replaced
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
                unfinished.replace(self._path)
            finally:
                unfinished.unlink(missing_ok=True)

    def _fill(self, path: Path, stop: Stop) -> None:
        directories = [self._sessions / name for name in session_names(self._sessions)]
        directories.sort(key=_written)  # so that the latest has the highest number
        began = reported = time.monotonic()
        with closing(create(path)) as connection:
            rows = IndexRows(connection)
            for count, directory in enumerate(directories, start=1):
                stop.check()
                if count % _BUILDING_BATCH == 1:
                    connection.execute("BEGIN")
                rows.refresh(directory)
                if count % _BUILDING_BATCH == 0 or count == len(directories):
                    connection.execute("COMMIT")
                if time.monotonic() - reported > _REPORT_INTERVAL_S:
                    reported = time.monotonic()
                    self._report("fetching", count, len(directories), reported - began)
            finish(connection)
        took_s = time.monotonic() - began
        self._report("ready", len(directories), len(directories), took_s)
        logger.info("built the index of %d sessions in %.2f s", len(directories), took_s)

    def _report(self, phase: Phase, count: int, total: int, took_s: float) -> None:
        detail = f"{count} of {total} sessions, {count / max(took_s, 1e-6):.0f}/s"
        report(self._progress, ProgressEvent("session index", str(self._path), phase, detail=detail))

    @contextmanager
    def _locked(self, kind: int) -> Iterator[None]:
        descriptor = os.open(self._path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            fcntl.flock(descriptor, kind)
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """Turn what goes wrong with the file into one error; a file that is damaged is built again next time."""
        try:
            yield
        except sqlite3.DatabaseError as error:
            self.close()
            if _is_damage(error):
                with suppress(OSError):
                    self._path.unlink(missing_ok=True)
            elif not isinstance(error, sqlite3.OperationalError):
                raise
            raise IndexUnusableError(f"{self._path}: {error}") from error
        except (OSError, FormatUnsupportedError) as error:
            raise IndexUnusableError(str(error)) from error


def check_index_format(path: Path) -> None:
    """Make sure that an index was not made by a newer version; one that is missing or damaged is built when needed.

    Raises:
        FormatUnsupportedError: a newer version made it.
    """
    if path.exists():
        with suppress(sqlite3.DatabaseError), closing(connect(path)) as connection:
            _checked_version(path, connection)


def _checked_version(path: Path, connection: sqlite3.Connection) -> int:
    version = format_version(connection)
    if version > FORMAT_VERSION:
        raise FormatUnsupportedError(f"{path} has format {version}, this version reads up to {FORMAT_VERSION}")
    return version


def _write(connection: sqlite3.Connection, directories: Iterable[Path]) -> None:
    rows = IndexRows(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        for directory in directories:
            rows.refresh(directory)
    except BaseException:
        with suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _is_damage(error: sqlite3.DatabaseError) -> bool:
    """True if the file is at fault, and neither the moment nor a question of ours."""
    return type(error) is sqlite3.DatabaseError or "no such" in str(error)


def _is_full_of_garbage(connection: sqlite3.Connection) -> bool:
    (garbage,) = connection.execute("SELECT value FROM meta WHERE key = 'garbage'").fetchone()
    if garbage < _LEAST_GARBAGE:
        return False
    (live,) = connection.execute("SELECT sum(texts) FROM sessions").fetchone()
    return bool(garbage > (live or 0))


def _written(directory: Path) -> int:
    try:
        return (directory / METADATA).stat().st_mtime_ns
    except OSError:
        return 0


_KNOWN = "SELECT id, name, owner, transcript_inode, transcript_bytes, texts FROM sessions WHERE session_id = ?"
_INSERT = f"INSERT INTO sessions ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_UPDATE = f"UPDATE sessions SET {', '.join(f'{name} = ?' for name in COLUMNS)} WHERE id = ?"
_READ = "UPDATE sessions SET transcript_inode = ?, transcript_bytes = ?, texts = texts + ? WHERE id = ?"
_TAG = f"INSERT OR IGNORE INTO tags VALUES ({', '.join('?' * (len(TAG_COLUMNS) + 2))})"
_ADD_TEXT = "INSERT INTO texts (rowid, text, owner) VALUES (?, ?, ?)"
_DROP_TEXT = "INSERT INTO texts (texts, rowid, text, owner) VALUES ('delete', ?, ?, ?)"


@dataclass(frozen=True)
class _Row:
    number: int
    name: str | None
    owner: str | None
    inode: int
    end: int
    texts: int


class IndexRows:
    """The rows of one open index; the caller holds the transaction."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._full_text = has_full_text(connection)

    def refresh(self, directory: Path) -> None:
        """Make the index say what the files of a session say, or nothing when it is gone."""
        execute = self._connection.execute
        found = execute(_KNOWN, (directory.name,)).fetchone()
        row = _Row(*found) if found else None
        execute("DELETE FROM unreadable WHERE session_id = ?", (directory.name,))
        record = find_record(directory)
        if record is None:
            self._drop(row)
            if SessionFiles(directory).exists():
                execute("INSERT INTO unreadable VALUES (?)", (directory.name,))
            return
        transcript = directory / TRANSCRIPT
        inode, size = _status(transcript)
        if row is not None and (row.owner != _value(record, "owner") or row.inode not in (0, inode) or size < row.end):
            self._drop(row)
            row = None
        number = self._put(row, record, directory.name)
        self._read_on(number, record, transcript, inode, start=row.end if row else 0)

    def _put(self, row: _Row | None, record: SessionRecord, session_id: str) -> int:
        execute = self._connection.execute
        values = [_value(record, name) for name in COLUMNS]
        values[0] = session_id
        if row is None:
            number = execute(_INSERT, values).lastrowid or 0
        else:
            number = row.number
            execute(_UPDATE, [*values, number])
            execute("DELETE FROM tags WHERE id = ?", (number,))
        repeated = [values[COLUMNS.index(name)] for name in TAG_COLUMNS]
        self._connection.executemany(_TAG, [(storable(tag), *repeated, number) for tag in record.tags])
        if self._full_text:
            self._name(number, row.name if row else None, storable(record.name or ""), owner_word(record.owner))
        return number

    def _name(self, number: int, before: str | None, name: str, owner: str) -> None:
        if before and before != name:
            self._connection.execute(_DROP_TEXT, (place(number, None), indexed_text(before), owner))
        if name and before != name:
            self._connection.execute(_ADD_TEXT, (place(number, None), indexed_text(name), owner))

    def _read_on(self, number: int, record: SessionRecord, transcript: Path, inode: int, start: int) -> None:
        """Take in what was appended to a transcript since."""
        lines = whole_lines(transcript, start)
        if not lines and start:
            return
        owner = owner_word(record.owner)
        texts = [
            (place(number, byte), indexed_text(text), owner)
            for byte, line in lines
            if self._full_text and (text := message_text(parse_line(line) or {}))
        ]
        if texts:
            self._connection.executemany(_ADD_TEXT, texts)
        end = lines[-1][0] + len(lines[-1][1]) + 1 if lines else start
        self._connection.execute(_READ, (inode, end, len(texts), number))

    def _drop(self, row: _Row | None) -> None:
        """Forget a session; its texts stay behind under a number that no session has any more."""
        if row is None:
            return
        execute = self._connection.execute
        execute("DELETE FROM sessions WHERE id = ?", (row.number,))
        execute("DELETE FROM tags WHERE id = ?", (row.number,))
        execute("UPDATE meta SET value = value + ? WHERE key = 'garbage'", (row.texts,))


def _value(record: SessionRecord, column: str) -> str | int | None:
    match column:
        case "tags":
            return json.dumps(record.tags)
        case "is_root":
            return record.root_id == record.session_id
        case "root_session_id":
            return record.root_id
        case "last_activity_at":
            return sort_value(record, column)
    value = getattr(record, column)
    return value if value is None or isinstance(value, int) else storable(str(value))


def _status(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_ino, status.st_size
