"""The files of one session, as anyone may read them.

A switch of the plan prepares its files in a directory of their own and moves that to `switch` in one step, which is the
moment it takes effect; then each file is moved out of it. Whoever reads looks there first.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from amplifier_sessions.event_file import EVENTS, EventFile
from amplifier_sessions.event_page import EventPage, EventPlace
from amplifier_sessions.session_directory import METADATA, SWITCH, TRANSCRIPT, read_file
from amplifierd.exceptions import MountPlanMissingError, SessionDamagedError, SessionError, SessionNotFoundError
from amplifierd.stored_json import KEY, StoredFormat

from .hold import Hold
from .json_lines import encoded_file, parse_line, read_lines, read_since
from .protocol import MessagePage, Place
from .record import SessionRecord, now, slim

PARTS = "parts.jsonl"
LINE_FILES = (TRANSCRIPT, EVENTS, PARTS)
PLAN = "mount_plan.json"
HOLD = "hold.json"
GATE = "gate"

_DOCUMENT = re.compile(r"[a-z][a-z0-9_]{0,63}")
_RESERVED = frozenset({"metadata", "mount_plan", "hold"})
_ARCHIVED_PLAN = re.compile(r"mount_plan\.(\d+)\.json")


@dataclass(frozen=True)
class SessionFiles:
    """The directory of one session."""

    directory: Path

    @property
    def session_id(self) -> str:
        return self.directory.name

    def path(self, name: str) -> Path:
        return self.directory / name

    def exists(self) -> bool:
        return self.path(METADATA).exists()

    def size(self, name: str) -> int:
        """Return how many bytes a file has, 0 when there is none."""
        try:
            return os.stat(f"{self.directory}/{name}").st_size  # noqa: PTH116 - for nearly every request
        except OSError:
            return 0

    def read(self, name: str) -> bytes | None:
        """Return what a file that is replaced as a whole says, None when there is none."""
        return read_file(self.directory, name)

    def read_record(self) -> SessionRecord:
        content = self.read(METADATA)
        if content is None:
            raise self.not_found()
        return parse_record(content, self.session_id, f"{self.directory}/{METADATA}")

    def read_plan(self, number: int | None) -> dict[str, Any]:
        name = PLAN if number is None else archived_plan_name(number)
        content = self.read(name)
        if content is None:
            self.check_exists()
            raise MountPlanMissingError(
                f"session {self.session_id!r} has no {name}",
                hint="restore the file, or fork the session into another profile",
            )
        value = self._parse(content, name)
        if not isinstance(value, dict):
            raise SessionError(f"{self.path(name)} does not contain a mount plan", hint="restore the file")
        return value

    def read_document(self, name: str) -> Any | None:
        file_name = document_file_name(name)
        content = self.read(file_name)
        if content is None:
            self.check_exists()
            return None
        return self._parse(content, file_name)

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        entries = read_lines(self.path(name))
        if not entries:
            self.check_exists()
        return entries

    def read_message_page(self, place: Place) -> MessagePage:
        page = place.read(self.path(TRANSCRIPT))
        if not page.messages:
            self.check_exists()
        return page

    def read_events(self, after_seq: int) -> list[dict[str, Any]]:
        if not after_seq:
            return self.read_lines(EVENTS)
        entries = read_since(self.path(EVENTS), lambda event: int(event.get("seq") or 0) <= after_seq)
        if not entries:
            self.check_exists()
        return entries

    def read_event_page(self, place: EventPlace) -> EventPage:
        page = EventFile(self.directory).read(place, parse_line)
        if not page.events:
            self.check_exists()
        return page

    def index_events(self) -> int:
        """Make sure that pages of the events are found quickly; returns up to which byte they are."""
        return EventFile(self.directory).bring_up_to_date()

    def read_hold(self) -> Hold | None:
        """Return what `hold.json` says, None when the session is free or nothing can be read from it."""
        try:
            value = json.loads(self.path(HOLD).read_bytes())
            return Hold.of_dict(self.session_id, value)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return None

    def count_archived_plans(self) -> int:
        names = (path.name for folder in (self.directory, self.path(SWITCH)) for path in folder.glob("mount_plan.*"))
        return max((int(found[1]) for name in names if (found := _ARCHIVED_PLAN.fullmatch(name))), default=0)

    def document_names(self) -> list[str]:
        """Return the names of the documents, those of a switch that has begun included."""
        paths = (path for folder in (self.directory, self.path(SWITCH)) for path in folder.glob("*.json"))
        return sorted({path.stem for path in paths if _DOCUMENT.fullmatch(path.stem)} - _RESERVED)

    def check_exists(self) -> None:
        if not self.exists():
            raise self.not_found()

    def not_found(self) -> SessionNotFoundError:
        return SessionNotFoundError(
            f"there is no session {self.session_id!r} in {self.directory.parent}", hint="list the sessions there are"
        )

    def _parse(self, content: bytes, name: str) -> Any:
        try:
            return json.loads(content)
        except ValueError as error:
            raise SessionError(f"{self.path(name)} is not JSON: {error}", hint="restore or delete the file") from error


def archived_plan_name(number: int) -> str:
    return f"mount_plan.{number}.json"


def document_file_name(name: str) -> str:
    """Return the file in which a named document lies.

    Raises:
        ValueError: a document cannot have that name.
    """
    if not _DOCUMENT.fullmatch(name) or name in _RESERVED:
        raise ValueError(f"a document of a session cannot be named {name!r}: use lower-case letters, digits and _")
    return f"{name}.json"


# `metadata.json`: a session's record, under its own names and those that the foundation's utilities read.


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
