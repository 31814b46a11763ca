"""The row of a session: its record, and the columns that lists ask for."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from amplifier_sessions.index_query import Wanted, message_text, words
from amplifier_sessions.session_query import sort_value
from amplifierd.store.json_lines import encoded, parse_line
from amplifierd.store.protocol import Message, StoredEvent
from amplifierd.store.record import SessionRecord
from amplifierd.store.session_files import parse_record, record_fields

from .schema import FILTERED_COLUMNS

COLUMNS = (
    *("session_id", "record", "revision", *FILTERED_COLUMNS, "last_activity_at", "created_at", "ended_at"),
    *("name", "name_said", "message_count", "is_root", "tags"),
)
INSERTED, INSERTED_VALUES = ", ".join(COLUMNS), ", ".join(f"%({name})s" for name in COLUMNS)
CHANGED = ", ".join(f"{name} = %({name})s" for name in COLUMNS if name != "session_id")


def row_values(record: SessionRecord) -> dict[str, Any]:
    """Return what the row of a session says.

    Raises:
        ValueError: there is something in the record that JSON cannot say.
    """
    return {
        **{name: column_text(getattr(record, name)) for name in FILTERED_COLUMNS},
        "session_id": record.session_id,
        "record": json_text(record_fields(record)),
        "revision": record.revision,
        "root_session_id": record.root_id,
        "last_activity_at": column_text(sort_value(record, "last_activity_at")),
        "created_at": column_text(record.created_at),
        "ended_at": column_text(record.ended_at or ""),
        "name": column_text(record.name or ""),
        "name_said": said_words(record.name or ""),
        "message_count": record.message_count,
        "is_root": record.root_id == record.session_id,
        "tags": [column_text(tag) for tag in record.tags],
    }


def record_of(body: str, session_id: str) -> SessionRecord:
    """Return the record that a row has.

    Raises:
        FormatUnsupportedError: a newer version wrote it.
        SessionError: it cannot be read.
    """
    return parse_record(body.encode(), session_id)


# Values as PostgreSQL takes them: its texts know neither the character 0 nor halves of surrogate pairs.


_LONGEST_WORD = 500  # characters; the index takes no longer ones
_LONGEST_COMPARED = 500
_LARGEST = (1 << 63) - 1


def json_text(value: Any) -> str:
    """Return a value as one line of JSON, in which everything that a text cannot have is escaped.

    Raises:
        ValueError: there is something in it that JSON cannot say.
    """
    return encoded(value).decode()


def parsed(body: str) -> dict[str, Any]:
    """Return the object that a stored line says."""
    return parse_line(body.encode()) or {}


def column_text(value: Any) -> str | None:
    """Return a value as a column that is only compared has it; of one that no index takes, its beginning and a hash."""
    if value is None:
        return None
    text = str(value).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if len(text) <= _LONGEST_COMPARED:
        return text
    return f"{text[:_LONGEST_COMPARED]}…{hashlib.sha256(text.encode()).hexdigest()}"


def said_words(text: str) -> str | None:
    """Return the words of a text between spaces, None when there is none."""
    found = [word[:_LONGEST_WORD] for word in words(text)]
    return f" {' '.join(found)} " if found else None


def said_in(message: Mapping[str, Any]) -> str | None:
    return said_words(message_text(dict(message)))


def event_number(event: Mapping[str, Any]) -> int:
    number = event.get("seq")
    return number if isinstance(number, int) and abs(number) < _LARGEST else 0


def search_conditions(wanted: Wanted, column: str, words_of: str) -> tuple[str, dict[str, str]] | None:
    """Return what a row has to satisfy in which a text is found, with its values; None when there is no word in it.

    The index finds the rows that have all of its words; those that have to stand in a row are looked for in these.
    """
    if not wanted.phrases:
        return None
    phrases = [[word[:_LONGEST_WORD] for word in phrase] for phrase in wanted.phrases]
    every = " & ".join(f"'{word}'" for phrase in phrases for word in phrase)
    conditions, values = [f"{words_of.format(column)} @@ %(words)s::tsquery"], {"words": every}
    for number, phrase in enumerate(phrases):
        if len(phrase) > 1:
            conditions.append(f"strpos({column}, %(phrase{number})s) > 0")
            values[f"phrase{number}"] = f" {' '.join(phrase)} "
    return f"({' AND '.join(conditions)})", values


# Messages and events as rows: what is stored of each, column by column.


MESSAGE_COLUMNS = "message_id, body, said"
NEW_MESSAGES = f"""
unnest(%(ids)s::text[], %(messages)s::text[], %(said)s::text[]) WITH ORDINALITY AS new ({MESSAGE_COLUMNS}, number)
"""
EVENT_COLUMNS = "seq, name, body"
NEW_EVENTS = f"""
unnest(%(seqs)s::bigint[], %(names)s::text[], %(events)s::text[]) WITH ORDINALITY AS new ({EVENT_COLUMNS}, number)
"""


def message_values(messages: Sequence[Message]) -> dict[str, list[Any]]:
    """Return the columns of messages.

    Raises:
        ValueError: there is something in one that JSON cannot say.
    """
    return {
        "ids": [column_text(message.get("id")) for message in messages],
        "messages": [json_text(message) for message in messages],
        "said": [said_in(message) for message in messages],
    }


def event_values(events: Sequence[StoredEvent]) -> dict[str, list[Any]]:
    """Return the columns of events, and raise what `message_values` raises."""
    return {
        "seqs": [event_number(event) for event in events],
        "names": [column_text(event.get("event")) or "" for event in events],
        "events": [json_text(event) for event in events],
    }
