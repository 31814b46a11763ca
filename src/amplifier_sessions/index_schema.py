"""The tables of `index.db`, and how the file is opened.

A session has a number that is never used again. What was said in it is found under places: the session's number, and
the byte at which the message's line begins in its transcript. The texts themselves stay in the transcripts.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

FORMAT_VERSION = 1

_PLACE_BITS = 36  # for the byte of a line, plus one; the place 0 is the session's name
_BUSY_LIMIT_S = 2.0
_CACHE_KIB = 16 * 1024

_SORTED_BY = ("last_activity_at", "created_at", "ended_at", "name", "message_count")
_FILTERED_BY = (
    "status",
    "profile_name",
    "bundle",
    "working_dir",
    "parent_session_id",
    "root_session_id",
    "owner",
    "is_root",
)
_ASKED_ALONG = "session_id, status, owner, is_root"  # so that most questions need nothing but an index

TAG_COLUMNS = ("last_activity_at", "session_id", "status", "owner", "is_root")
"""What the rows of tags repeat of the sessions that have them."""

COLUMNS = (
    "session_id",
    "status",
    "profile_name",
    "bundle",
    "working_dir",
    "created_at",
    "ended_at",
    "last_activity_at",
    "message_count",
    "parent_session_id",
    "root_session_id",
    "name",
    "tags",
    "created_by",
    "owner",
    "origin",
    "agent_name",
    "is_root",
)

_TABLES = f"""
CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    {", ".join(COLUMNS)},
    transcript_inode INTEGER NOT NULL DEFAULT 0,
    transcript_bytes INTEGER NOT NULL DEFAULT 0,
    texts INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX by_session_id ON sessions (session_id);
CREATE TABLE tags (
    tag TEXT NOT NULL, {", ".join(TAG_COLUMNS)}, id INTEGER NOT NULL,
    PRIMARY KEY (tag, last_activity_at, session_id)
) WITHOUT ROWID;
CREATE INDEX tags_of ON tags (id);
CREATE TABLE unreadable (session_id TEXT PRIMARY KEY) WITHOUT ROWID;
"""
_INDEXES = f"""
{"".join(f"CREATE INDEX by_{name} ON sessions ({name}, {_ASKED_ALONG});" for name in _SORTED_BY)}
{"".join(f"CREATE INDEX of_{name} ON sessions ({name}, last_activity_at, {_ASKED_ALONG});" for name in _FILTERED_BY)}
"""
_FULL_TEXT = "CREATE VIRTUAL TABLE texts USING fts5(text, owner, content='', tokenize='unicode61 remove_diacritics 0')"


def connect(path: Path) -> sqlite3.Connection:
    """Open a file that is there; transactions are begun and ended in so many words."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        isolation_level=None,
        timeout=_BUSY_LIMIT_S,
        check_same_thread=False,
    )
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    return connection


def create(path: Path) -> sqlite3.Connection:
    """Make a new file with empty tables, to be filled by one process; nothing is safe before it is finished."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    connection.executescript(
        f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA cache_size = -{4 * _CACHE_KIB}; {_TABLES}"
    )
    connection.executemany("INSERT INTO meta VALUES (?, ?)", [("format_version", FORMAT_VERSION), ("garbage", 0)])
    if has_full_text(connection):
        connection.execute(_FULL_TEXT)
    return connection


def finish(connection: sqlite3.Connection) -> None:
    """Make a filled file ready for several processes."""
    connection.executescript(_INDEXES)
    connection.execute("ANALYZE")
    connection.execute("PRAGMA journal_mode = WAL")


def has_full_text(connection: sqlite3.Connection) -> bool:
    """Say whether this SQLite was built with full-text search."""
    return any(option == "ENABLE_FTS5" for (option,) in connection.execute("PRAGMA compile_options"))


def format_version(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM meta WHERE key = 'format_version'").fetchone()
    return int(row[0]) if row else 0


def seen_at(connection: sqlite3.Connection) -> int:
    """Return the time of the sessions' directory when its names were last compared with the index, 0 if never."""
    row = connection.execute("SELECT value FROM meta WHERE key = 'seen_at'").fetchone()
    return int(row[0]) if row else 0


def note_seen(connection: sqlite3.Connection, changed: int) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('seen_at', ?)", (changed,))


def owner_word(owner: str | None) -> str:
    """Return an owner's name as one word of the index."""
    return "" if owner is None else f"o{owner.encode('utf-8', 'surrogatepass').hex()}"


def storable(text: str) -> str:
    """Return a text as SQLite takes it, which knows no halves of surrogate pairs."""
    return text.encode("utf-8", "backslashreplace").decode()


def place(number: int, byte: int | None) -> int:
    """Return where a text is: a message that begins at a byte of the transcript, or the session's name."""
    return number << _PLACE_BITS | (0 if byte is None else byte + 1)


def session_number(found: int) -> int:
    return found >> _PLACE_BITS


def message_byte(found: int) -> int | None:
    byte = found & ((1 << _PLACE_BITS) - 1)
    return byte - 1 if byte else None
