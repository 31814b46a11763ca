"""The directory that holds a session's backups."""

import gzip
import itertools
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from amplifier_kit.files import create_atomically

from .formats import EXTENSIONS, Message, encode

logger = logging.getLogger(__name__)

Kind = Literal["compact", "final", "turn"]

_LONGEST_ID = 100
_UNFIT = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True, slots=True)
class BackupStore:
    """Writes backups that never overwrite each other, and keeps the newest of them."""

    form: str
    include_metadata: bool
    compress: bool
    max_backups: int

    def prepare(
        self, kind: Kind, messages: list[Message], session_id: str | None, metadata: dict[str, Any]
    ) -> "Backup":
        """Return a backup of the messages as they are now, to be written when it suits."""
        stamp = datetime.now(UTC).strftime("%Y%m%d_%H%M%S")
        described = {**metadata, "timestamp": stamp, "message_count": len(messages), "session_id": session_id}
        data = encode(self.form, messages, described if self.include_metadata else None)
        extension = EXTENSIONS[self.form] + (".gz" if self.compress else "")
        return Backup(self, kind, stamp, _fit_for_name(session_id), extension, data)


@dataclass(frozen=True, slots=True)
class Backup:
    """A transcript on its way to the disk."""

    store: BackupStore
    kind: Kind
    stamp: str
    session: str
    extension: str
    data: bytes

    def write(self, directory: Path) -> tuple[Path, int]:
        """Write the file as a whole, remove backups beyond the number to keep; returns its path and size.

        Raises `OSError`.
        """
        data = gzip.compress(self.data) if self.store.compress else self.data
        path = create_atomically(self._names(directory), data)
        if self.store.max_backups:
            self._prune(directory)
        return path, len(data)

    def _names(self, directory: Path) -> Iterator[Path]:
        """Yield the names it may have: numbers go up even where pruning has made room below."""
        stem = f"transcript_{self.kind}_{self.stamp}{self.session}"
        siblings = self._siblings(directory) if self.store.max_backups and directory.is_dir() else []
        highest = max((number for (stamp, number), _ in siblings if stamp == self.stamp), default=0)
        for number in itertools.count(highest + 1):
            yield directory / f"{stem}{f'_{number}' if number > 1 else ''}.{self.extension}"

    def _prune(self, directory: Path) -> None:
        try:
            for _, older in self._siblings(directory)[: -self.store.max_backups]:
                older.unlink(missing_ok=True)
        except OSError:
            logger.warning("older backups in %s could not be removed", directory, exc_info=True)

    def _siblings(self, directory: Path) -> list[tuple[tuple[str, int], Path]]:
        """Return the backups of the same session and kind, oldest first."""
        named = re.compile(
            rf"transcript_{self.kind}_(\d{{8}}_\d{{6}}){re.escape(self.session)}(?:_(\d+))?\.\w+(?:\.gz)?"
        )
        found = ((named.fullmatch(path.name), path) for path in directory.iterdir())
        return sorted(((match[1], int(match[2] or 1)), path) for match, path in found if match)


def _fit_for_name(session_id: str | None) -> str:
    """Return the part of a file name that stands for the session; it never ends like a number of a collision."""
    if not session_id:
        return ""
    name = _UNFIT.sub("-", session_id)[:_LONGEST_ID]
    return "_" + re.sub(r"_(\d+)$", r"-\1", name)
