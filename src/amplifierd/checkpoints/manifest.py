"""What a tree was at one moment: every file, symlink and directory, and what is not known about it."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

from amplifier_system.processes import ProcessTree, reading
from amplifierd.exceptions import CheckpointError

from .ignore_rules import IgnoreRules
from .object_store import PackWriter

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


# The difference between two trees as unified text, made by git from our own store alone.


LARGEST_DIFF = 1024 * 1024  # bytes
_TIMEOUT_S = 30.0
_PIECE = 65536

_SETTINGS = ("core.hooksPath=/dev/null", "core.fsmonitor=false", "core.attributesFile=/dev/null", "gc.auto=0")
_ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "HOME": "/nonexistent",
    "LC_ALL": "C",
}
_COMMAND = ("diff-tree", "-r", "-p", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--full-index")


async def diff_trees(store: Path, before: str, after: str) -> tuple[str, bool]:
    """Return the difference between two trees of a store, and whether it was cut off.

    Git runs with an environment and a configuration of our own, far from the user's.

    Raises:
        CheckpointError: git is not installed, failed, or took too long.
    """
    settings = [word for setting in _SETTINGS for word in ("-c", setting)]
    command = ["git", f"--git-dir={store}", *settings, *_COMMAND, before, after]
    environment = {**_ENVIRONMENT, "PATH": os.environ.get("PATH", os.defpath)}
    try:
        git = await ProcessTree.start(command, environment=environment, cwd=store)
    except FileNotFoundError as error:
        raise CheckpointError("the difference cannot be shown: the command 'git' is not installed") from error
    try:
        async with asyncio.timeout(_TIMEOUT_S), git, reading(git.stdout) as output, reading(git.stderr) as errors:
            data = await _read_up_to(output, LARGEST_DIFF + 1)
            is_cut = len(data) > LARGEST_DIFF
            if not is_cut and await git.wait() != 0:
                words = (await _read_up_to(errors, _PIECE)).decode("utf-8", "replace").strip()
                raise CheckpointError(f"the difference cannot be shown: git says {words!r}")
    except TimeoutError:
        raise CheckpointError(f"the difference cannot be shown: git took longer than {_TIMEOUT_S:g} s") from None
    return _text(data[:LARGEST_DIFF], is_cut), is_cut


async def _read_up_to(stream: asyncio.StreamReader, limit: int) -> bytes:
    data = bytearray()
    while len(data) < limit and (piece := await stream.read(min(_PIECE, limit - len(data)))):
        data += piece
    return bytes(data)


def _text(data: bytes, is_cut: bool) -> str:
    if not is_cut:
        return data.decode("utf-8", "replace")
    whole_lines = data[: data.rfind(b"\n") + 1].decode("utf-8", "replace")
    return f"{whole_lines}... the difference is longer than {LARGEST_DIFF} bytes and was cut off here\n"


def describe_modes(changed: Sequence[Difference]) -> str:
    """Return, in the form of git, the changes that git does not keep: permissions, and directories."""
    pieces = []
    for each in changed:
        before, after = each.before, each.after
        sides = [side for side in (before, after) if side is not None]
        is_git_blind = all(side.kind == "directory" for side in sides) or (
            before is not None
            and after is not None
            and before.git_mode == after.git_mode
            and before.full_mode != after.full_mode
        )
        if not is_git_blind:
            continue
        lines = [f"diff --git a/{each.path} b/{each.path}"]
        if before is None and after is not None:
            lines.append(f"new directory mode {after.full_mode:06o}")
        elif after is None and before is not None:
            lines.append(f"deleted directory mode {before.full_mode:06o}")
        elif before is not None and after is not None:
            lines += [f"old mode {before.full_mode:06o}", f"new mode {after.full_mode:06o}"]
        pieces.append("\n".join(lines) + "\n")
    return "".join(pieces)
