"""What a tree was at one moment: every file, symlink and directory, and what is not known about it."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Literal, NamedTuple

from .ignore_rules import IgnoreRules
from .pack_file import PackWriter

Kind = Literal["file", "symlink", "directory"]

_TYPES: dict[Kind, int] = {"file": stat.S_IFREG, "symlink": stat.S_IFLNK, "directory": stat.S_IFDIR}


class Entry(NamedTuple):
    """One file, symlink or directory. `mode` has its permissions, of a symlink none; `oid` names its contents."""

    kind: Kind
    mode: int
    oid: str
    size: int

    @property
    def git_mode(self) -> int:
        """The mode as git keeps it: of a file's permissions only whether its owner may execute it."""
        if self.kind == "file":
            return 0o100755 if self.mode & stat.S_IXUSR else 0o100644
        return 0o120000 if self.kind == "symlink" else 0o040000

    @property
    def full_mode(self) -> int:
        return _TYPES[self.kind] | self.mode


class Missing(Enum):
    """Why a manifest has no entry for a path."""

    ABSENT = "absent"
    UNKNOWN = "unknown"


ABSENT, UNKNOWN = Missing.ABSENT, Missing.UNKNOWN

State = Entry | Missing


@dataclass(frozen=True)
class Manifest:
    """A tree at one moment. Paths are relative, with `/`, as `os.fsdecode` makes them.

    `covers_tree` says whether all of it was looked at, but for what `rules` ignore; `watched` paths were looked at in
    any case; about `unknown` ones, and what is below them, nothing can be said.
    """

    entries: Mapping[str, Entry]
    rules: IgnoreRules = field(default_factory=IgnoreRules)
    covers_tree: bool = True
    watched: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    def state_of(self, path: str) -> State:
        if entry := self.entries.get(path):
            return entry
        if self.unknown and any(each in self.unknown for each in (path, *ancestors(path))):
            return UNKNOWN
        if path in self.watched:
            return ABSENT
        return ABSENT if self.covers_tree and not self.rules.ignores(path) else UNKNOWN

    @cached_property
    def file_count(self) -> int:
        return sum(entry.kind != "directory" for entry in self.entries.values())

    @cached_property
    def total_bytes(self) -> int:
        return sum(entry.size for entry in self.entries.values())

    @property
    def directory_modes(self) -> dict[str, int]:
        return {path: entry.mode for path, entry in self.entries.items() if entry.kind == "directory"}

    def to_bytes(self) -> bytes:
        value = {
            "covers_tree": self.covers_tree,
            "rules": self.rules.to_json(),
            "watched": sorted(self.watched),
            "unknown": sorted(self.unknown),
            "entries": {path: self.entries[path] for path in sorted(self.entries)},
        }
        return json.dumps(value, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        value: dict[str, Any] = json.loads(data)
        return cls(
            entries={path: Entry(*entry) for path, entry in value["entries"].items()},
            rules=IgnoreRules.from_json(value["rules"]),
            covers_tree=value["covers_tree"],
            watched=frozenset(value["watched"]),
            unknown=frozenset(value["unknown"]),
        )


@dataclass(frozen=True)
class Difference:
    """One path that two manifests know and have differently."""

    path: str
    before: Entry | None
    after: Entry | None


def differences(before: Manifest, after: Manifest) -> list[Difference]:
    """Return what is known to differ, in the order of the paths. What one side does not know does not count."""
    paths = before.entries.keys() | after.entries.keys()
    changed = [path for path in paths if before.entries.get(path) != after.entries.get(path)]
    found = []
    for path in sorted(changed):
        old, new = before.state_of(path), after.state_of(path)
        if UNKNOWN not in (old, new):
            found.append(Difference(path, _entry(old), _entry(new)))
    return found


def _entry(state: State) -> Entry | None:
    return None if isinstance(state, Missing) else state


def ancestors(path: str) -> Iterator[str]:
    """Yield the directories above a path, the nearest first, without the root."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def files_of(entries: Iterable[tuple[str, Entry | None]]) -> Iterator[tuple[str, Entry]]:
    """Yield the files and symlinks among entries."""
    return ((path, entry) for path, entry in entries if entry is not None and entry.kind != "directory")


def write_tree(writer: PackWriter, entries: Iterable[tuple[str, Entry]]) -> str:
    """Store the tree of these entries as git would, empty directories included, and return its id."""
    folders: dict[str, list[tuple[bytes, int, str]]] = {"": []}
    for path, entry in entries:
        parent, _, name = path.rpartition("/")
        if parent not in folders:
            folders.update((folder, []) for folder in ancestors(path) if folder not in folders)
        if entry.kind == "directory":
            folders.setdefault(path, [])
        else:
            folders[parent].append((_encoded(name), entry.git_mode, entry.oid))
    for folder in sorted(folders, key=_depth, reverse=True):
        oid = writer.add("tree", _tree(folders[folder]))
        if not folder:
            return oid
        parent, _, name = folder.rpartition("/")
        folders[parent].append((_encoded(name), 0o040000, oid))
    raise AssertionError("the root is the last folder")


def _depth(folder: str) -> int:
    return folder.count("/") + 1 if folder else 0


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _tree(members: list[tuple[bytes, int, str]]) -> bytes:
    def place(member: tuple[bytes, int, str]) -> bytes:
        return member[0] + (b"/" if member[1] == 0o040000 else b"")  # git sorts directories as if they ended in a slash

    ordered = sorted(members, key=place)
    return b"".join(b"%o %s\0" % (mode, name) + bytes.fromhex(oid) for name, mode, oid in ordered)
