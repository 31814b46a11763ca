"""What an undo has to do, and what speaks against it: decided completely before anything is touched."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from amplifierd.stored_json import StoredFormat

from .manifest import ABSENT, Difference, Entry, Manifest, Missing, State, ancestors
from .root_directory import RootDirectory


@dataclass(frozen=True)
class UndoPlan:
    """`wanted` says what each path shall be. `foreign` paths were changed by someone else since, and `unkept` ones are
    in the way without any checkpoint that has them, so that not even force may remove them."""

    wanted: dict[str, Entry | None]
    foreign: tuple[str, ...]
    unkept: tuple[str, ...]


def plan_undo(
    root: RootDirectory,
    changed: Sequence[Difference],
    *,
    before: Manifest,
    present: Manifest,
    interrupted: Manifest | None,
) -> UndoPlan:
    """Return how `changed` is taken back from what is `present`.

    `interrupted` is what was there when an undo of the same changes began that did not come to its end.
    """
    wanted = {each.path: each.before for each in changed}
    states = {each.path: present.state_of(each.path) for each in changed}
    foreign = {each.path for each in changed if not _is_expected(states[each.path], each, interrupted)}
    unkept = {path for path, state in states.items() if state is Missing.UNKNOWN}
    for path in _in_the_way(root, changed, states):
        foreign.add(path)
        if path in present.entries:
            wanted[path] = None
        else:
            unkept.add(path)
    for path, entry in _missing_folders(wanted, before, present):
        wanted[path] = entry
        foreign.add(path)
        unkept |= {path} if present.state_of(path) is Missing.UNKNOWN else set()
    wanted = {path: entry for path, entry in wanted.items() if present.state_of(path) != (entry or ABSENT)}
    return UndoPlan(wanted, tuple(sorted(foreign)), tuple(sorted(unkept)))


def _in_the_way(root: RootDirectory, changed: Sequence[Difference], states: Mapping[str, State]) -> set[str]:
    """Return what others put into directories that shall be files again."""
    shall_be_files = [each.path for each in changed if each.before is not None and each.before.kind != "directory"]
    folders = [path for path in shall_be_files if _is_entry(states[path], "directory")]
    return {path for folder in folders for path in _all_below(root, folder)} - states.keys()


def _missing_folders(
    wanted: Mapping[str, Entry | None], before: Manifest, present: Manifest
) -> Sequence[tuple[str, Entry]]:
    """Return the directories around what is brought back that are not there, or not directories, any more."""
    folders = {above for path, entry in wanted.items() if entry is not None for above in ancestors(path)}
    needed = [(path, before.entries[path]) for path in folders - wanted.keys() if path in before.entries]
    return [(path, entry) for path, entry in needed if not _is_entry(present.state_of(path), "directory")]


def _is_expected(state: State, each: Difference, interrupted: Manifest | None) -> bool:
    """True if a path is free of other changes: as it was left, or already as it was before."""
    expected: list[State] = [each.after or ABSENT, each.before or ABSENT]
    if interrupted is not None:
        expected += [ABSENT, interrupted.state_of(each.path)]
        if each.before is not None and each.before.kind == "directory" and _is_entry(state, "directory"):
            return True  # the permissions are the last thing that is set
    return state in expected and state is not Missing.UNKNOWN


def _is_entry(state: State, kind: str) -> bool:
    return not isinstance(state, Missing) and state.kind == kind


def _all_below(root: RootDirectory, path: str) -> Iterator[str]:
    """Yield the path of everything on the disk below a directory, ignored or not."""
    waiting = [path]
    while waiting:
        folder = waiting.pop()
        with root.opened(folder) as descriptor:
            for entry in list(os.scandir(descriptor)):
                here = f"{folder}/{entry.name}"
                yield here
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(here)


FORMAT = StoredFormat(version=1)


class UndoJournal:
    """Names the checkpoints of one undo: what it takes back, and what was there when it began."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def begin(self, before: str, after: str, checkpoint: str) -> None:
        FORMAT.write(self._path, {"before": before, "after": after, "checkpoint": checkpoint})

    def end(self) -> None:
        self._path.unlink()

    def pending(self) -> tuple[str, str] | None:
        """Return between which checkpoints an undo was interrupted."""
        match self._read():
            case {"before": str(before), "after": str(after)}:
                return before, after
        return None

    def find(self, before: str, after: str) -> str | None:
        """Return the checkpoint that an interrupted undo of these changes began with."""
        match self._read():
            case {"before": known, "after": until, "checkpoint": str(id)} if (known, until) == (before, after):
                return id
        return None

    def _read(self) -> dict[str, Any]:
        try:
            return FORMAT.read(self._path) or {}
        except ValueError:  # it is written in one step: whatever damaged it, there is nothing to go on with
            return {}
