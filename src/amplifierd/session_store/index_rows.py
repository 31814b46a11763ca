"""Bringing the index up to date with one session's files: the same for a change, a new session and a rebuild."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from amplifier_sessions.index_schema import COLUMNS, TAG_COLUMNS, has_full_text, owner_word, place, storable
from amplifier_sessions.search_text import indexed_text, message_text
from amplifier_sessions.session_directory import TRANSCRIPT
from amplifier_sessions.session_query import sort_value

from .file_listing import find_record
from .json_lines import parse_line, whole_lines
from .record import SessionRecord
from .session_files import SessionFiles

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
