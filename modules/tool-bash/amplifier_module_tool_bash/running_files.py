"""The running places of a working directory, before and after a command: what changed in them is put back."""

import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from amplifier_kit.files import Replacement
from amplifier_kit.tools.descriptors import opened_directory
from amplifier_system.policy.running_places import ANYWHERE, RunningPlace

_LONGEST = 1 << 20
_MOST_ENTRIES = 300_000
_MOST_FILES = 5_000
_BESIDE_HEAD = frozenset({"objects", "refs", "commondir", "config"})
_OF_REPOSITORY = ("config", "config.worktree", "commondir", "info/attributes")
_NOT_ENTERED = frozenset({"node_modules", ".venv", "venv", "site-packages", "dist-packages", "__pycache__"})
_OF_SESSIONS = frozenset({"logs", "transcripts", "audit", "sessions"})  # below .amplifier, written by sessions
_SECTION = re.compile(r'\[([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\x00-\x1f]|\\["\\])*)")?\]')
_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*([^\x00-\x08\x0a-\x1f\\]*))?")
_INERT = re.compile(
    r"branch\..*\.(remote|merge|rebase|pushremote|description)|remote\..*\.(url|pushurl|fetch|push|tagopt|prune|mirror)"
    r"|core\.(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks)"
    r"|extensions\.(objectformat|refstorage)|submodule\..*\.(url|active|branch)|user\.(name|email)"
)


@dataclass(frozen=True, slots=True)
class _File:
    """One file or link: what tells it from another, its mode, and its content where it can be put back."""

    signature: tuple[int, ...]
    mode: int
    content: bytes | None
    reason: str


@dataclass(slots=True)
class RunningFiles:
    """The running files below some directories at one moment."""

    files: dict[str, _File] = field(default_factory=dict)
    is_complete: bool = True

    @classmethod
    def of(cls, roots: list[Path], before: "RunningFiles | None" = None) -> "RunningFiles":
        """Look at directories; contents of files that are as they were `before` are not read again."""
        found = cls()
        for path, reason in _running_files(roots):
            if path is None:
                found.is_complete = False
                break
            if len(found.files) >= _MOST_FILES:
                found.is_complete = False
                break
            if (file := _read(path, reason, before)) is not None:
                found.files[path] = file
        return found

    def changes(self, after: "RunningFiles") -> list[str]:
        """Return the files that differ afterwards in a way that matters."""
        names = sorted(self.files.keys() | after.files.keys())
        return [name for name in names if _matters(name, self.files.get(name), after.files.get(name))]

    def reason_of(self, name: str, after: "RunningFiles") -> str:
        return (self.files.get(name) or after.files[name]).reason

    def put_back(self, name: str) -> bool:
        """Make a file what it was, by descriptor and through no link; False when that fails."""
        path, old = Path(name), self.files.get(name)
        if old is not None and old.content is None:
            return False
        try:
            with opened_directory(path.parent, create=old is not None) as directory:
                if old is None or stat.S_ISLNK(old.mode) or _is_directory(path.name, directory):
                    _remove(path.name, directory)
                if old is not None and stat.S_ISLNK(old.mode):
                    os.symlink(os.fsdecode(old.content or b""), path.name, dir_fd=directory)
                elif old is not None:
                    with Replacement(directory) as new:
                        new.file.write(old.content or b"")
                        new.file.flush()
                        os.fchmod(new.file.fileno(), stat.S_IMODE(old.mode))
                        new.take_place(path.name)
        except OSError:
            return False
        return True


def _running_files(roots: list[Path]) -> Iterator[tuple[str | None, str]]:
    """Yield the running files below directories, each with what it does; (None, "") where there is too much to see."""
    waiting = [str(root) for root in roots]
    budget = _MOST_ENTRIES
    while waiting:
        directory = waiting.pop()
        try:
            with os.scandir(directory) as entries:
                by_name = {entry.name: entry for entry in entries}
        except OSError:
            continue
        budget -= len(by_name)
        if budget < 0:
            yield None, ""
            return
        if "HEAD" in by_name and not _BESIDE_HEAD.isdisjoint(by_name):
            yield from _of_repository(directory, waiting)
            continue
        for name, entry in by_name.items():
            folded = name.casefold()
            if folded in ANYWHERE and (found := _running(entry, ANYWHERE[folded])):
                yield from found
            elif entry.is_dir(follow_symlinks=False) and folded not in _NOT_ENTERED:
                waiting.append(entry.path)


def _running(
    entry: "os.DirEntry[str]", rows: tuple[tuple[tuple[str, ...], RunningPlace], ...]
) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for parts, row in rows:
        if row.treatment == "packages" or (row.name == ".git" and entry.is_dir(follow_symlinks=False)):
            continue
        found += [(path, row.reason) for path in _below(os.path.join(entry.path, *parts[1:]))]  # noqa: PTH118
    return found


def _of_repository(directory: str, waiting: list[str]) -> Iterator[tuple[str, str]]:
    reason = "runs at the next git command"
    for name in _OF_REPOSITORY:
        if os.path.lexists(f"{directory}/{name}"):
            yield f"{directory}/{name}", reason
    yield from ((path, reason) for path in _below(f"{directory}/hooks") if not path.endswith(".sample"))
    waiting.extend(each for each in (f"{directory}/modules", f"{directory}/worktrees") if Path(each).is_dir())


def _below(path: str) -> Iterator[str]:
    """Yield a file, or all files of a directory; links are not followed."""
    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            yield path
            return
    except OSError:
        return
    for folder, folders, files in os.walk(path):
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        folders[:] = [name for name in folders if name not in links and name not in _OF_SESSIONS]
        yield from (f"{folder}/{name}" for name in (*files, *links))


def _read(path: str, reason: str, before: RunningFiles | None) -> _File | None:
    try:
        found = os.lstat(path)
        signature = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_mode)
        if before is not None and (old := before.files.get(path)) is not None and old.signature == signature:
            return old
        content: bytes | None = None
        if stat.S_ISLNK(found.st_mode):
            content = os.fsencode(os.readlink(path))  # noqa: PTH115 - bytes are kept
        elif stat.S_ISREG(found.st_mode) and found.st_size <= _LONGEST:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                content = file.read(_LONGEST + 1)
    except OSError:
        return None
    return _File(signature, found.st_mode, content, reason)


def _matters(name: str, old: _File | None, new: _File | None) -> bool:
    if old is not None and new is not None and old.signature == new.signature:
        return False
    if old and new and old.content is not None and (old.mode, old.content) == (new.mode, new.content):
        return False
    if old is None and new is not None and new.content == b"" and name.endswith("/info/attributes"):
        return False  # which the sandbox puts there, so that no other can be
    last = name.rpartition("/")[2]
    if last == "config" and "/" in name and (new is None or stat.S_ISREG(new.mode)):
        return not _is_inert(old.content if old else b"", new.content if new else b"")
    if last == "commondir" and old is None and new is not None and "/worktrees/" in name:
        return (new.content or b"").strip() != b"../.."
    if last == ".git" and old is None and new is not None:
        return not _leads_inside(Path(name), new.content or b"")
    return True


def _leads_inside(git: Path, content: bytes) -> bool:
    """True for a `.git` file of a worktree or submodule, whose repository is one that is looked at itself."""
    target = os.path.realpath(git.parent / os.fsdecode(content.removeprefix(b"gitdir:").strip()))
    return "/.git/worktrees/" in target or "/.git/modules/" in target


def _is_inert(old: bytes | None, new: bytes | None) -> bool:
    """True when two configurations of a repository differ only in what runs nothing."""
    before, after = _settings(old), _settings(new)
    if before is None or after is None:
        return False
    changed = (before - after) + (after - before)
    return all(_INERT.fullmatch(key) and "::" not in value for key, value in changed)


def _settings(content: bytes | None) -> Counter[tuple[str, str]] | None:
    """Return the settings of a git configuration; None for one that is not plainly understood."""
    if content is None:
        return None
    found: Counter[tuple[str, str]] = Counter()
    section = ""
    for raw in content.decode("utf-8", "surrogateescape").split("\n"):
        line = raw.removesuffix("\r").strip(" \t")
        if header := _SECTION.match(line):
            section = header[1].lower() + (f".{header[2]}" if header[2] is not None else "")
            line = line[header.end() :].strip(" \t")
        if not line or line[0] in "#;":
            if line.endswith("\\"):
                return None
            continue
        entry = _ENTRY.fullmatch(line)
        if entry is None or not section:
            return None
        found[f"{section}.{entry[1].lower()}", entry[2] or ""] += 1
    return found


def _is_directory(name: str, directory: int) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode)
    return False


def _remove(name: str, directory: int) -> None:
    with suppress(FileNotFoundError):
        if _is_directory(name, directory):
            shutil.rmtree(name, dir_fd=directory)
        else:
            os.unlink(name, dir_fd=directory)
