"""Checkpoints as values, and the file they are stored in: `records.jsonl`, a line for each."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from amplifier_system.files import LineFile, sync_directory
from amplifierd.exceptions import CheckpointError
from amplifierd.stored_json import StoredFormat

from .manifest import Difference, ancestors

logger = logging.getLogger(__name__)

FORMAT = StoredFormat(version=1)

_encoded = json.JSONEncoder(separators=(",", ":")).encode

_NO_FILE = (0, 0, 0)
_FILES = 1_000_000
"""Ids of lines are above it, those of files below: a version that writes files never gives an id again."""


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
    """The checkpoints of one session, in the order in which they were taken.

    Each is a line of `<directory>.jsonl`; of several lines with one id the last one counts. Earlier versions stored
    each in a file of its own, `<directory>/<id>.json`: these are read, and come first. What was read is remembered
    while the file stays as it is. `are_lasting` says whether all that was stored here is on the disk.
    """

    def __init__(self, directory: Path) -> None:
        self._older, self._path = directory, directory.with_name(f"{directory.name}.jsonl")
        self._known: dict[str, Checkpoint] = {}
        self._seen: tuple[int, int, int] | None = None
        self.are_lasting = True

    def list(self) -> tuple[Checkpoint, ...]:
        return tuple(self._look().values())

    def last(self) -> Checkpoint | None:
        known = self._look()
        return known[next(reversed(known))] if known else None

    def get(self, id: str) -> Checkpoint:
        """Return a checkpoint by its id.

        Raises:
            CheckpointError: there is none.
            FormatUnsupportedError: a newer version wrote it.
        """
        found = self._look().get(id)
        if found is None:
            raise CheckpointError(f"there is no checkpoint {id!r} in {self._path}")
        return found

    def add(self, checkpoint: Checkpoint, *, lasting: bool = True) -> Checkpoint:
        """Store a checkpoint under the next id, and return it with that; one that is not lasting waits for no disk."""
        last = self.last()
        numbered = replace(checkpoint, id=str(max(int(last.id), _FILES) + 1 if last else _FILES + 1))
        self.replace(numbered, lasting=lasting)
        return numbered

    def replace(self, checkpoint: Checkpoint, *, lasting: bool = True) -> None:
        known = self._look()
        is_new = self._seen == _NO_FILE
        lines = LineFile(self._path, fsync=lasting)
        try:
            lines.append(_encoded(FORMAT.stamped(vars(checkpoint))) + "\n")
            self._seen = _status(os.fstat(lines.fileno()))
        finally:
            lines.close()
        if is_new:
            sync_directory(self._path.parent)
        self.are_lasting = lasting
        known[checkpoint.id] = checkpoint

    def make_lasting(self) -> None:
        """Wait until the disk has all that was stored."""
        if not self.are_lasting:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self.are_lasting = True

    def _look(self) -> dict[str, Checkpoint]:
        """Return all checkpoints by their ids."""
        try:
            status = _status(os.stat(self._path))  # noqa: PTH116 - twice a turn
        except FileNotFoundError:
            status = _NO_FILE
        if status != self._seen:
            stored = [(path, path.read_bytes()) for path in sorted(self._older.glob("[0-9]*.json"))]
            if status != _NO_FILE:
                whole = self._path.read_bytes().split(b"\n")[:-1]  # the last one counts once its end is written
                stored += [(self._path, line) for line in whole]
            self._known = {found.id: found for place in stored if (found := _read(*place)) is not None}
            self._seen = status
        return self._known


def _status(status: os.stat_result) -> tuple[int, int, int]:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read(path: Path, content: bytes) -> Checkpoint | None:
    """Return the checkpoint that a record describes; one that is damaged, or was torn by a crash, is passed over."""
    try:
        return _parse(FORMAT.parse(content, path))
    except (ValueError, TypeError, KeyError) as error:
        logger.warning("%s has a damaged record, which is left out: %s", path, error)
        return None


def _parse(value: dict[str, Any]) -> Checkpoint:
    fields = {name: value[name] for name in Checkpoint.__dataclass_fields__}
    return Checkpoint(**{**fields, "unreadable": tuple(fields["unreadable"])})


# What the questions about checkpoints are answered with.


@dataclass(frozen=True)
class Changes:
    """What differs between two moments. Paths are relative; a directory, named where nothing in it is, ends in `/`.

    `diff` is unified text, cut off when it is too long. Unless both sides are `complete`, `reason` says what is not
    known.
    """

    added: tuple[str, ...]
    modified: tuple[str, ...]
    deleted: tuple[str, ...]
    diff: str
    is_cut: bool
    complete: bool
    reason: str


@dataclass(frozen=True)
class UndoResult:
    """What an undo did.

    `foreign` are the paths that were changed by someone else since. Unless it is `done`, they are why nothing at all
    was touched. `restored` are the paths that were brought back, `not_empty` directories that stay since they hold what
    the undone changes did not bring. `undo(before, after)` takes it back.
    """

    done: bool
    restored: tuple[str, ...]
    foreign: tuple[str, ...]
    not_empty: tuple[str, ...]
    before: Checkpoint | None
    after: Checkpoint | None


def paths_of(changed: Sequence[Difference]) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]:
    """Return what was added, modified and deleted."""
    within = {above for each in changed for above in ancestors(each.path)}
    added, modified, deleted = list[str](), list[str](), list[str]()
    for each in changed:
        kinds = added if each.before is None else deleted if each.after is None else modified
        if not _is_directory(each):
            kinds.append(each.path)
        elif kinds is modified or each.path not in within:
            kinds.append(f"{each.path}/")
    return tuple(added), tuple(modified), tuple(deleted)


def _is_directory(each: Difference) -> bool:
    return all(side is None or side.kind == "directory" for side in (each.before, each.after))
