"""`metadata.json`: a session's record, under its own names and those that the foundation's utilities read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from amplifierd.exceptions import SessionDamagedError
from amplifierd.stored_json import KEY, StoredFormat

from .json_lines import encoded_file
from .record import SessionRecord, now, slim


def _from_the_foundation(value: dict[str, Any]) -> dict[str, Any]:
    """Give the metadata of a session that an application without this store kept the fields that ours have."""
    created = value.get("created_at") or value.get("created") or now()
    return {
        **value,
        "parent_session_id": value.get("parent_session_id") or value.get("parent_id"),
        "created_at": created,
        "last_activity_at": value.get("last_activity_at") or created,
        "working_dir": value.get("working_dir") or str(Path.home()),
        "turn_count": value.get("turn_count") or 0,
    }


METADATA_FORMAT = StoredFormat(version=1, migrations={0: _from_the_foundation}, private=True)

_TWICE = {"parent_id": "parent_session_id", "created": "created_at"}
_NOT_OF_THE_RECORD = (KEY, *_TWICE)


def metadata_text(record: SessionRecord) -> bytes:
    return encoded_file(record_fields(record))


def record_fields(record: SessionRecord) -> dict[str, Any]:
    """Return what is stored of a record."""
    fields = record.fields()
    return {KEY: METADATA_FORMAT.version, **fields, **{name: fields[own] for name, own in _TWICE.items()}}


def parse_metadata(content: bytes, path: Path) -> SessionRecord:
    """Return the record that a file's contents say; an older format is understood, the file stays as it is.

    Raises:
        FormatUnsupportedError: a newer version wrote it.
        SessionDamagedError: it cannot be read.
    """
    return parse_record(content, path.parent.name, path)


def parse_record(content: bytes, session_id: str, place: Path | str | None = None) -> SessionRecord:
    """Return the record of a session that is stored at a place, and raise what `parse_metadata` raises."""
    where = place or f"session {session_id}"
    try:
        fields = METADATA_FORMAT.parse(content, where)
        for name in _NOT_OF_THE_RECORD:
            fields.pop(name, None)
        return slim(SessionRecord.model_validate({**fields, "session_id": session_id}))
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
        raise _damaged(where, wrong) from error
    except ValueError as error:
        raise _damaged(where, str(error)) from error


def _damaged(where: Path | str, why: str) -> SessionDamagedError:
    return SessionDamagedError(
        f"{where} is not the metadata of a session: {why}",
        hint="restore it from a backup, or remove the directory of the session",
    )
