"""Bringing paths of a tree back to an earlier state, name by name through descriptors, never through a symlink."""

from __future__ import annotations

import os
import stat
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from amplifier_system.files import Replacement

from .manifest import Entry, ancestors
from .object_store import ObjectStore
from .root_directory import RootDirectory, change_mode_of_directory, permissions
from .stat_cache import Signature, signature

TEMPORARY = ".amplifier-undo-"
_OWNER = 0o700


@dataclass
class Outcome:
    """What became of the paths: brought back, left since others changed them meanwhile, directories not empty."""

    restored: set[str] = field(default_factory=set)
    foreign: set[str] = field(default_factory=set)
    not_empty: set[str] = field(default_factory=set)


class Restoration:
    """Makes paths what `wanted` says, None for those that shall not exist.

    A file is replaced as a whole, so it is its old self or its new one at any moment. `seen` has the signatures of the
    files as they were when it was decided to replace them: one that differs by then is left alone. `modes` are the
    permissions of all directories around, which are widened for a moment where they are in the way.
    """

    def __init__(
        self,
        root: RootDirectory,
        store: ObjectStore,
        *,
        wanted: Mapping[str, Entry | None],
        seen: Mapping[str, Signature],
        modes: Mapping[str, int],
    ) -> None:
        self._root = root
        self._store = store
        self._wanted = wanted
        self._seen = seen
        self._modes = modes

    def run(self, *, around: Iterable[str]) -> Outcome:
        """Do it, and return what became of every path. What a killed run left `around` these paths is removed.

        Raises:
            CheckpointError: what is to be written is missing from the store.
            OSError: something could not be written; the rest was not done, and can be by running it again.
        """
        outcome = Outcome()
        remove_temporaries(self._root, around)
        try:
            for path in sorted(self._wanted, reverse=True):  # what is in a directory comes before it
                self._with_access(path, lambda path=path: self._remove(path, outcome))  # type: ignore[misc]
            for path in sorted(self._wanted):
                if path not in outcome.foreign:
                    self._with_access(path, lambda path=path: self._create(path, outcome))  # type: ignore[misc]
        finally:
            self._set_modes()
        self._make_lasting()
        outcome.restored -= outcome.foreign
        return outcome

    def _remove(self, path: str, outcome: Outcome) -> None:
        """Remove what cannot stay: a path that shall not exist, or is of another kind than it shall be."""
        wanted, status = self._wanted[path], self._root.status(path)
        if status is None:
            return
        is_directory = stat.S_ISDIR(status.st_mode)
        if wanted is not None and is_directory == (wanted.kind == "directory"):
            return
        with self._root.parent(path) as (folder, name):
            if is_directory:
                self._remove_directory(path, folder, name, outcome)
            elif self._is_as_seen(path, status):
                os.unlink(name, dir_fd=folder)
                outcome.restored.add(path)
            else:
                outcome.foreign.add(path)

    def _remove_directory(self, path: str, folder: int, name: str, outcome: Outcome) -> None:
        try:
            os.rmdir(name, dir_fd=folder)
        except OSError as error:
            if isinstance(error, PermissionError):
                raise
            (outcome.not_empty if self._wanted[path] is None else outcome.foreign).add(path)
        else:
            outcome.restored.add(path)

    def _create(self, path: str, outcome: Outcome) -> None:
        wanted = self._wanted[path]
        if wanted is None:
            return
        status = self._root.status(path)
        with self._root.parent(path) as (folder, name):
            if wanted.kind == "directory":
                if status is None:
                    os.mkdir(name, _OWNER, dir_fd=folder)
            elif status is not None and not self._is_as_seen(path, status):
                outcome.foreign.add(path)
                return
            else:
                self._put(folder, name, wanted)
        outcome.restored.add(path)

    def _put(self, folder: int, name: str, entry: Entry) -> None:
        """Put a file or a symlink in its place, in one step."""
        if entry.kind == "symlink":
            self._link(folder, name, os.fsdecode(self._store.read(entry.oid)))
            return
        with Replacement(folder, prefix=TEMPORARY) as new:
            for piece in self._store.pieces(entry.oid):
                new.file.write(piece)
            new.file.flush()
            os.fchmod(new.file.fileno(), entry.mode)
            new.sync()
            new.take_place(name)

    def _link(self, folder: int, name: str, target: str) -> None:
        temporary = f"{TEMPORARY}{uuid.uuid4().hex}"
        os.symlink(target, temporary, dir_fd=folder)
        try:
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)

    def _is_as_seen(self, path: str, status: os.stat_result) -> bool:
        return self._seen.get(path) == signature(status)

    def _with_access(self, path: str, work: Callable[[], None]) -> None:
        try:
            work()
        except PermissionError:
            for above in sorted(ancestors(path)):
                status = self._root.status(above)
                if status is not None and permissions(status) & _OWNER != _OWNER:
                    self._change_mode(above, permissions(status) | _OWNER)
            work()

    def _set_modes(self) -> None:
        """Give every directory on the way its permissions, also those that an interrupted run had widened."""
        folders = {path: entry.mode for path, entry in self._wanted.items() if entry and entry.kind == "directory"}
        for path in self._wanted:
            for above in ancestors(path):
                if above in self._modes and above not in folders and self._wanted.get(above, ...) is not None:
                    folders[above] = self._modes[above]
        for path in sorted(folders, reverse=True):
            status = self._root.status(path)
            if status is not None and stat.S_ISDIR(status.st_mode) and permissions(status) != folders[path]:
                self._change_mode(path, folders[path])

    def _change_mode(self, path: str, mode: int) -> None:
        with self._root.parent(path) as (folder, name):
            change_mode_of_directory(name, mode, folder=folder)

    def _make_lasting(self) -> None:
        for folder in {path.rpartition("/")[0] for path in self._wanted}:
            with suppress(OSError), self._root.opened(folder) as descriptor:  # some file systems cannot
                os.fsync(descriptor)


def remove_temporaries(root: RootDirectory, paths: Iterable[str]) -> None:
    """Remove the unfinished files of a killed run from the directories that these paths lie in."""
    for folder in {path.rpartition("/")[0] for path in paths}:
        with suppress(OSError), root.opened(folder) as descriptor:
            for entry in list(os.scandir(descriptor)):
                if entry.name.startswith(TEMPORARY):
                    os.unlink(entry.name, dir_fd=descriptor)
