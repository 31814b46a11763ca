"""The row of a session: its record, and the columns that lists ask for."""

from __future__ import annotations

from typing import Any

from amplifier_sessions.session_query import sort_value
from amplifierd.session_store.metadata_file import parse_record, record_fields
from amplifierd.session_store.record import SessionRecord

from .schema import FILTERED_COLUMNS
from .stored_text import column_text, json_text, said_words

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
