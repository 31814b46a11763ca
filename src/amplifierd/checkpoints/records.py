"""Checkpoints as values, and the files they are stored in: `records/<id>.json`, one for each."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from amplifier_system.files import remove_unfinished
from amplifierd.exceptions import CheckpointError
from amplifierd.stored_json import StoredFormat

FORMAT = StoredFormat(version=1)


@dataclass(frozen=True)
class Checkpoint:
    """The working directory at one moment of a session.

    `tree` is the git id of its contents, and `manifest` that of everything else. Unless it is `complete`, `reason` says
    why; `files` and `bytes` count what is kept, and `took_seconds` is what it took.
    """

    id: str
    turn: int
    label: str
    tree: str
    manifest: str
    complete: bool
    reason: str
    unreadable: tuple[str, ...]
    files: int
    bytes: int
    took_seconds: float


class Records:
    """The checkpoints of one session, in the order in which they were taken."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def list(self) -> tuple[Checkpoint, ...]:
        return tuple(self.get(path.stem) for path in sorted(self._directory.glob("[0-9]*.json")))

    def last(self) -> Checkpoint | None:
        path = max(self._directory.glob("[0-9]*.json"), default=None)
        return self.get(path.stem) if path else None

    def get(self, id: str) -> Checkpoint:
        """Return a checkpoint by its id.

        Raises:
            CheckpointError: there is none, or its record is damaged.
            FormatUnsupportedError: a newer version wrote it.
        """
        path = self._directory / f"{id}.json"
        try:
            value = FORMAT.read(path) if id.isdigit() else None
            if value is not None:
                return _parse(value)
        except (ValueError, TypeError, KeyError) as error:
            raise CheckpointError(f"{path} is damaged: {error}") from error
        raise CheckpointError(f"there is no checkpoint {id!r} in {self._directory}")

    def add(self, checkpoint: Checkpoint) -> Checkpoint:
        """Store a checkpoint under the next id, and return it with that."""
        remove_unfinished(self._directory)
        newest = max(self._directory.glob("[0-9]*.json"), default=None)
        numbered = replace(checkpoint, id=f"{int(newest.stem) + 1 if newest else 1:06d}")
        self.replace(numbered)
        return numbered

    def replace(self, checkpoint: Checkpoint) -> None:
        FORMAT.write(self._directory / f"{checkpoint.id}.json", asdict(checkpoint))


def _parse(value: dict[str, Any]) -> Checkpoint:
    fields = {name: value[name] for name in Checkpoint.__dataclass_fields__}
    return Checkpoint(**{**fields, "unreadable": tuple(fields["unreadable"])})
