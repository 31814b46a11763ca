"""Deleted sessions that can be brought back: their directories, moved here in one step and back in one step.

Each lies under the moment of its deletion and its id, so that several of one id can be here. What has another name is
being removed for good.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from amplifier_foundation.sources.store import make_directory
from amplifier_sessions.session_directory import is_session_id
from amplifier_system.files import sync_directory
from amplifierd.exceptions import SessionExistsError, SessionNotFoundError

from .file_listing import find_record
from .protocol import NewSession, TrashedSession
from .record import SessionRecord
from .session_files import SessionFiles
from .staging import create_directory, rename_directory
from .whole_session import free_contents, read_whole

_MOMENT = "%Y%m%dT%H%M%S.%fZ"
_BETWEEN = "~"  # no id has it


@dataclass(frozen=True)
class _Entry:
    path: Path
    session_id: str
    deleted_at: str


class Trash:
    """The trash beside the sessions of a home. Everything here blocks."""

    def __init__(self, sessions: Path) -> None:
        self._sessions, self._directory = sessions, sessions / ".trash"

    def place_for(self, session_id: str) -> Path:
        """Return where a session is to be moved to that is deleted now."""
        return make_directory(self._directory) / f"{datetime.now(UTC).strftime(_MOMENT)}{_BETWEEN}{session_id}"

    def place_for_removal(self) -> Path:
        """Return where a session is to be moved to that is removed for good."""
        return make_directory(self._directory) / uuid.uuid4().hex

    def list(self) -> tuple[TrashedSession, ...]:
        """Return what can be brought back, the last deleted first; what cannot be read is left out."""
        found = ((entry, find_record(entry.path)) for entry in self._entries())
        return tuple(_trashed(entry, record) for entry, record in found if record is not None)

    def place_of(self, session_id: str, deleted_at: str) -> Path:
        """Return where a session is, or is to be put, that was deleted at a moment."""
        moment = datetime.fromisoformat(deleted_at).astimezone(UTC).strftime(_MOMENT)
        return self._directory / f"{moment}{_BETWEEN}{session_id}"

    def read(self, trashed: TrashedSession) -> NewSession:
        """Return everything that a session has.

        Raises:
            SessionNotFoundError: it is not here.
        """
        session_id = trashed.record.session_id
        path = self.place_of(session_id, trashed.deleted_at)
        if not path.is_dir():
            raise _not_here(session_id)
        whole = read_whole(SessionFiles(path))
        return replace(whole, record=_named(whole.record, session_id))

    def add(self, new: NewSession, deleted_at: str) -> None:
        """Put a session here; one that is here already stays."""
        place = self.place_of(new.record.session_id, deleted_at)
        make_directory(self._directory)
        with suppress(FileExistsError):
            create_directory(self._sessions, str(place.relative_to(self._sessions)), free_contents(new))
        sync_directory(self._directory)

    def restore(self, session_id: str) -> None:
        """Move a session back, the last one of that id.

        Raises:
            SessionNotFoundError: it is not here, or another process has just taken it.
            SessionExistsError: there is one of that id again.
        """
        entry = next((entry for entry in self._entries() if entry.session_id == session_id), None)
        if entry is None:
            raise _not_here(session_id)
        try:
            rename_directory(entry.path, self._sessions / session_id)
        except FileNotFoundError:
            raise _not_here(session_id) from None
        except FileExistsError:
            raise SessionExistsError(
                f"there is a session {session_id!r} again, so the deleted one cannot be restored",
                hint="delete that one first",
            ) from None
        sync_directory(self._sessions)
        sync_directory(self._directory)

    def purge(self, session_id: str, before: str | None) -> None:
        """Remove every session of an id for good, or those that were deleted before a moment.

        Raises:
            SessionNotFoundError: there is none here.
        """
        entries = [entry for entry in self._entries() if entry.session_id == session_id]
        if not entries:
            raise _not_here(session_id)
        for entry in entries:
            if before is not None and entry.deleted_at >= before:
                continue
            removed = self.place_for_removal()
            with suppress(FileNotFoundError):  # another process has just taken it
                entry.path.rename(removed)
            shutil.rmtree(removed, ignore_errors=True)

    def remove_leftovers(self) -> None:
        """Go on with removals that a killed process had begun."""
        with suppress(OSError):  # none there, or the home is read-only
            for path in [*self._directory.iterdir()]:
                if _read_name(path) is None:
                    shutil.rmtree(path, ignore_errors=True)

    def _entries(self) -> Iterator[_Entry]:
        with suppress(FileNotFoundError):
            for path in sorted(self._directory.iterdir(), reverse=True):
                if (entry := _read_name(path)) is not None:
                    yield entry


def _trashed(entry: _Entry, record: SessionRecord) -> TrashedSession:
    """Return a session as it was: its record is named after its directory, which has another name here."""
    return TrashedSession(_named(record, entry.session_id), entry.deleted_at)


def _named(record: SessionRecord, session_id: str) -> SessionRecord:
    return record.model_copy(update={"session_id": session_id})


def _read_name(path: Path) -> _Entry | None:
    moment, between, session_id = path.name.partition(_BETWEEN)
    if not between or not is_session_id(session_id):
        return None
    try:
        deleted = datetime.strptime(moment, _MOMENT)
    except ValueError:
        return None
    return _Entry(path, session_id, deleted.isoformat(timespec="microseconds") + "Z")


def _not_here(session_id: str) -> SessionNotFoundError:
    return SessionNotFoundError(f"there is no deleted session {session_id!r}", hint="list the deleted sessions")
