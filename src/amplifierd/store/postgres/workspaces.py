"""The directories in which modules and checkpoints keep files of their own; they stay on the machine that has them.

That of a deleted session waits, under the moment of its deletion, for as long as the session can be brought back.
"""

from __future__ import annotations

import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from amplifier_foundation.sources.store import make_directory
from amplifierd.exceptions import SessionError

_TRASH = ".trash"
_BETWEEN = "~"  # no id has it


class Workspaces:
    """The workspaces of a home. Everything here blocks, and what cannot be moved or removed stays."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def place(self, session_id: str) -> Path:
        """Return the directory of a session, which is made if it is not there.

        Raises:
            SessionError: it cannot be made.
        """
        try:
            return make_directory(self._directory / session_id)
        except OSError as error:
            raise SessionError(
                f"session {session_id!r} has no place for files of its modules: {error}",
                hint=f"make {self._directory} writable, or room on its disk",
            ) from error

    def names(self) -> list[str]:
        """Return the sessions that have a directory here."""
        with suppress(FileNotFoundError):
            return [path.name for path in self._directory.iterdir() if path.name != _TRASH]
        return []

    def discard(self, session_id: str, deleted_at: str) -> None:
        with suppress(OSError):  # it has none on this machine, or it stays for the next session of that id
            (self._directory / session_id).rename(self.trashed(session_id, deleted_at))

    def restore(self, session_id: str, deleted_at: str) -> None:
        with suppress(OSError):  # it was deleted on another machine, or there is a new one here
            self.trashed(session_id, deleted_at).rename(self._directory / session_id)

    def remove(self, session_id: str) -> None:
        self._remove(self._directory / session_id)

    def purge(self, session_id: str, before: str | None) -> None:
        """Remove those of deleted sessions of an id, or those of them that were deleted before a moment."""
        for path in (self._directory / _TRASH).glob(f"*{_BETWEEN}{session_id}"):
            if before is None or path.name.partition(_BETWEEN)[0] < before:
                self._remove(path)

    def trashed(self, session_id: str, deleted_at: str) -> Path:
        """Return where that of a deleted session waits, if it has one on this machine."""
        return make_directory(self._directory / _TRASH) / f"{deleted_at}{_BETWEEN}{session_id}"

    def _remove(self, path: Path) -> None:
        with suppress(OSError):
            gone = make_directory(self._directory / _TRASH) / uuid.uuid4().hex
            path.rename(gone)
            shutil.rmtree(gone, ignore_errors=True)
