"""Questions to the index: a page of a list, the places where a text was found, a session's tree."""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from .session_query import SessionQuery, sort_order

# The tables of `index.db`, and how the file is opened.
#
# A session has a number that is never used again. What was said in it is found under places: the session's number,
# and the byte at which the message's line begins in its transcript. The texts themselves stay in the transcripts.


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
_COVERED = "session_id, status, owner, is_root"  # so that most questions need nothing but an index

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
{"".join(f"CREATE INDEX by_{name} ON sessions ({name}, {_COVERED});" for name in _SORTED_BY)}
{"".join(f"CREATE INDEX of_{name} ON sessions ({name}, last_activity_at, {_COVERED});" for name in _FILTERED_BY)}
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
    """True if this SQLite was built with full-text search."""
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


# What can be searched of a message, and what it takes for a text to be found.
#
# Words are runs of letters and digits in any case and without accents; of scripts that put no spaces between words
# each character counts as one. A text is found where all of its parts occur, each as its words in a row: `foo-bar
# baz` finds `baz, foo bar`.


LONGEST_TEXT = 100_000
"""So many characters of a message are searched."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_AROUND = 60


def message_text(message: dict[str, Any]) -> str:
    """Return what a message says: its text, or the texts of its blocks; results of tools are not searched."""
    if message.get("role") == "tool":
        return ""
    content = message.get("content")
    if isinstance(content, str):
        return content[:LONGEST_TEXT]
    if not isinstance(content, list):
        return ""
    texts = (block.get("text") for block in content if isinstance(block, dict))
    return "\n".join(text for text in texts if isinstance(text, str))[:LONGEST_TEXT]


def indexed_text(text: str) -> str:
    """Return a text such that an index which parts it at everything but letters and digits finds the same words."""
    return text if text.isascii() else " ".join(words(text))


def words(text: str) -> list[str]:
    return _WORD.findall(_folded(text))


class Wanted:
    """A text that someone looks for; an empty one is found nowhere."""

    def __init__(self, text: str) -> None:
        self.phrases = [phrase for part in text.split() if (phrase := words(part))]
        self._patterns = [re.compile(_phrase_pattern(phrase)) for phrase in self.phrases]

    def find(self, text: str) -> str | None:
        """Return the surroundings of the first place if everything wanted is in `text`."""
        folded = " ".join(words(text))
        spaced = f" {folded} "
        if not self.phrases or not all(f" {' '.join(phrase)} " in spaced for phrase in self.phrases):
            return None
        return self.snippet(text)

    def snippet(self, text: str) -> str:
        """Return the surroundings of the first place, the beginning of the text when there is none."""
        found = self._patterns[0].search(_folded_in_place(text))
        place = found.start() if found else 0
        start, end = max(0, place - _AROUND), place + 2 * _AROUND
        cut = " ".join(text[start:end].split())
        return f"{'…' if start else ''}{cut}{'…' if end < len(text) else ''}"


def _phrase_pattern(phrase: list[str]) -> str:
    return r"(?<![^\W_])" + r"[\W_]*".join(re.escape(word) for word in phrase)


def _folded(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text.lower())
    return "".join(char for char in decomposed if not unicodedata.combining(char)) if not text.isascii() else decomposed


def _folded_in_place(text: str) -> str:
    """Fold character by character, so that places stay what they are."""
    return text.lower() if text.isascii() else "".join(_folded(char)[:1] or " " for char in text)
