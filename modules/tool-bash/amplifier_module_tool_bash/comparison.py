"""The places that run, compared before and after each command that can write: what changed is put back, or kept."""

import asyncio
import contextlib
import difflib
import os
import re
import shutil
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from amplifier_kit.concerns import Concern, refusal_of
from amplifier_kit.files import Replacement
from amplifier_kit.redaction import mask_text
from amplifier_kit.sandbox.permissions import repository_of
from amplifier_kit.tools.paths import opened_directory
from amplifier_kit.tools.runs import announce
from amplifier_system.policy.running_places import RunningPlace, rows_of

from .launch import Launch

_LONGEST = 1 << 20
_MOST_ENTRIES = 300_000
_MOST_FILES = 5_000
_BESIDE_HEAD = frozenset({"objects", "refs", "commondir", "config"})
_OF_REPOSITORY = ("config", "config.worktree", "commondir", "info/attributes", "rebase-merge/git-rebase-todo")
_OF_MERCURIAL = ("hgrc", "hgrc-not-shared", "requires", "sharedpath")  # the rest is history, which commands write
_RUN_BY_REBASE = re.compile(rb"^[ \t]*(?:x|exec)[ \t]", re.MULTILINE)
_NOT_ENTERED = frozenset({"node_modules", ".venv", "venv", "site-packages", "dist-packages", "__pycache__"})
_OF_SESSIONS = frozenset({"logs", "transcripts", "audit", "sessions"})  # directly in .amplifier, written by sessions
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
            if (rows := rows_of(folded)) and (found := _running(entry, rows)):
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
        if row.name == ".hg" and entry.is_dir(follow_symlinks=False):
            places = [f"{entry.path}/{name}" for name in _OF_MERCURIAL]
        else:
            places = [os.path.join(entry.path, *parts[1:])]  # noqa: PTH118
        found += [(path, row.reason) for place in places for path in _below(place)]
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
    passed_over = _OF_SESSIONS if path.rpartition("/")[2].casefold() == ".amplifier" else frozenset()
    for folder, folders, files in os.walk(path):
        links = [name for name in folders if os.path.islink(f"{folder}/{name}")]  # noqa: PTH114
        folders[:] = [name for name in folders if name not in links and name not in passed_over]
        passed_over = frozenset()
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
    if last == "git-rebase-todo":
        return new is not None and not set(_commands(new)) <= set(_commands(old))
    if last == "config" and "/" in name and (new is None or stat.S_ISREG(new.mode)):
        return not _is_inert(old.content if old else b"", new.content if new else b"")
    if last == "commondir" and old is None and new is not None and "/worktrees/" in name:
        return (new.content or b"").strip() != b"../.."
    if last == ".git" and old is None and new is not None:
        return not _leads_inside(Path(name), new.content or b"")
    return True


def _commands(todo: _File | None) -> list[bytes]:
    """Return the lines of a rebase that run programs; all are, where a link or a large file hides them."""
    if todo is None:
        return []
    if todo.content is None or not stat.S_ISREG(todo.mode):
        return [bytes(str(todo.signature), "ascii")]
    return [line for line in todo.content.splitlines() if _RUN_BY_REBASE.match(line)]


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


def _diff(old: _File | None, new: _File | None) -> list[str]:
    if new is None:
        return ["is gone"]
    if stat.S_ISLNK(new.mode):
        return [f"leads to {os.fsdecode(new.content or b'')}"]
    if new.content is None or b"\0" in new.content:
        return ["is not text that can be shown"]
    before = (old.content or b"") if old is not None and stat.S_ISREG(old.mode) else b""
    said, says = (content.decode("utf-8", "backslashreplace").split("\n") for content in (before, new.content))
    mode = [] if old is None or old.mode == new.mode else [f"mode {stat.S_IMODE(new.mode):o}"]
    return [*mode, *list(difflib.unified_diff(said, says, lineterm="", n=1))[2:]]


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


UNDONE = "tool-bash:undone"

_TOO_LARGE = "the directory is too large for all places that run to be compared"
_MOST_REASONS = 20
_MOST_LOOKS = 10
_MOST_LINES = 400


@dataclass(slots=True)
class Difference:
    """What is other than before, in the directories of one command; `undone` says it, a sentence for each file."""

    roots: list[Path]
    before: RunningFiles
    after: RunningFiles
    changes: list[str]
    undone: list[str] = field(default_factory=list)

    def shown(self, name: str) -> str:
        path, base = Path(name), self.roots[0]
        return str(path.relative_to(base)) if path.is_relative_to(base) else name

    def reason(self, name: str) -> str:
        return self.before.reason_of(name, self.after)

    def differences(self) -> str:
        """Return what the files say now and said before, as a person can read it before they keep it."""
        lines: list[str] = []
        for name in self.changes:
            lines += [f"{self.shown(name)}:", *_diff(self.before.files.get(name), self.after.files.get(name))]
        if len(lines) > _MOST_LINES:
            lines[_MOST_LINES:] = [f"… {len(lines) - _MOST_LINES:,} more lines"]
        return mask_text("\n".join(lines), ("secrets",))

    def put_back(self) -> dict[str, bool]:
        """Make the files what they were; returns which of them are."""
        return {name: self.before.put_back(name) for name in self.changes}

    def bring_again(self) -> None:
        """Make the files what the command made of them, those that no one has changed since."""
        since = set(self.before.changes(RunningFiles.of(self.roots, self.before)))
        for name in self.changes:
            if name not in since:
                self.after.put_back(name)

    def keep_copies(self, folder: Path) -> None:
        """Keep what the files say now in a folder in which nothing runs."""
        for name in self.changes:
            file = self.after.files.get(name)
            if file is not None and file.content is not None:
                folder.mkdir(mode=0o700, exist_ok=True)
                (folder / quote(self.shown(name), safe="")).write_bytes(file.content)


class Comparison:
    """Compares for the commands of one session; those that overlap, with what was there before the first of them."""

    def __init__(self, coordinator: Any, tool_name: str) -> None:
        self._coordinator, self._tool_name = coordinator, tool_name
        self._comparing, self._running = asyncio.Lock(), 0
        self._before: RunningFiles | None = None
        self._last: RunningFiles | None = None

    async def begin(self, launch: Launch) -> None:
        """Look at the places before a command starts; one `end` or `end_late` follows."""
        async with self._comparing:
            if self._before is None:
                self._before = await asyncio.to_thread(RunningFiles.of, _roots(launch), self._last)
            self._running += 1

    async def end(self, launch: Launch) -> list[str]:
        """Put back what changed unless a person keeps it; returns a sentence for each file."""
        async with self._comparing:
            found = await self._look(launch)
            refusal = await self._refusal(found) if found.changes else None
            if refusal is not None:
                found = await self._undo_all(found, refusal, launch)
            await self._go_on(found, is_kept=refusal is None)
        return found.undone

    async def end_late(self, launch: Launch, copies: Path) -> Difference:
        """Put back what a command changed that ended while nobody waited for it; copies of it go to a folder.

        A person may be away, so they are asked afterwards, with `brings_again`, while other commands run.
        """
        async with self._comparing:
            found = await self._look(launch)
            if found.changes:
                with contextlib.suppress(OSError):
                    await asyncio.to_thread(found.keep_copies, copies)
                found = await self._undo_all(found, f"what it said is kept in {copies}", launch)
            await self._go_on(found, is_kept=not found.changes)
        return found

    async def brings_again(self, found: Difference) -> bool:
        """Ask whether what was put back is to be kept, and bring it again if it is."""
        if await self._refusal(found) is not None:
            return False
        async with self._comparing:
            await asyncio.to_thread(found.bring_again)
            self._last = None
            if self._running:
                self._before = await asyncio.to_thread(RunningFiles.of, found.roots)
        return True

    async def _look(self, launch: Launch) -> Difference:
        roots, before = _roots(launch), self._before or RunningFiles()
        after = await asyncio.to_thread(RunningFiles.of, roots, before)
        is_complete = before.is_complete and after.is_complete
        return Difference(roots, before, after, before.changes(after), [] if is_complete else [_TOO_LARGE])

    async def _undo_all(self, found: Difference, why: str, launch: Launch) -> Difference:
        """Put back what changed, and what came into sight only when that was gone; returns all of it."""
        found.undone += await self._undo(found, why)
        for _ in range(_MOST_LOOKS):
            if found.after.is_complete:
                break
            again = await self._look(launch)
            if not again.changes:
                break
            again.undone = [*found.undone, *await self._undo(again, why)]
            again.changes = list(dict.fromkeys((*found.changes, *again.changes)))
            found = again
        return found

    async def _undo(self, found: Difference, why: str) -> list[str]:
        are_back = await asyncio.to_thread(found.put_back)
        await announce(self._coordinator, UNDONE, {"files": [found.shown(name) for name in found.changes]})
        words = {True: "was put back as before", False: "changed and could not be put back"}
        return [
            f"{found.shown(name)} {words[is_back]}: it {found.reason(name)} ({why})"
            for name, is_back in are_back.items()
        ]

    async def _go_on(self, found: Difference, *, is_kept: bool) -> None:
        """Have what is there now be what the commands that still run, or the next one, are compared with."""
        self._running -= 1
        self._last = found.after if is_kept else None
        self._before = None
        if self._running:
            self._before = self._last or await asyncio.to_thread(RunningFiles.of, found.roots, found.before)

    async def _refusal(self, found: Difference) -> str | None:
        """Ask whether changes are kept, all of them in one question; returns why not."""
        subject = ", ".join(map(found.shown, found.changes))
        reasons = "; ".join(f"{found.shown(name)} {found.reason(name)}" for name in found.changes[:_MOST_REASONS])
        detail = await asyncio.to_thread(found.differences)
        concern = Concern("place", subject, f"the command changed what runs elsewhere: {reasons}", detail)
        return await refusal_of(self._coordinator, concern, self._tool_name)


def _roots(launch: Launch) -> list[Path]:
    working_dir = launch.confinement.working_dir
    return [working_dir, *repository_of(working_dir)]
