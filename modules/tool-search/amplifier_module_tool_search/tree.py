"""A directory tree as a search sees it: without what is denied, excluded, hidden or ignored."""

import os
import re
import stat
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TextIO

from amplifier_kit.tools.paths import real_name

from .glob_pattern import ANY_DEPTH, path_regex, split_components
from .search_run import Watch

# What `.gitignore` and its relatives leave out of a search.


GIT_IGNORE = ".gitignore"
KINDS = (".rgignore", ".ignore", GIT_IGNORE)  # the earlier ones take precedence

_MAX_BYTES = 1 << 20
_TRAILING_SPACE = re.compile(r"(?<!\\) +$")


@dataclass(frozen=True, slots=True)
class _Run:
    """Consecutive lines that all leave out, or all take back; `for_all` are those that mean not only directories."""

    takes_back: bool
    for_directories: re.Pattern[str]
    for_all: re.Pattern[str]

    def matches(self, path: str, *, is_directory: bool) -> bool:
        return (self.for_directories if is_directory else self.for_all).fullmatch(path) is not None


class IgnoreFile:
    """The lines of one file; the last one that matches decides."""

    def __init__(self, text: str) -> None:
        lines = filter(None, map(_parse, text.split("\n")))
        runs = [(key, list(group)) for key, group in groupby(lines, key=lambda line: line.takes_back)]
        self._runs = [_run(takes_back, group) for takes_back, group in reversed(runs)]

    def ignores(self, path: str, *, is_directory: bool) -> bool | None:
        """True if a path, relative to the file's directory, is left out; None when no line is about it."""
        return next((not run.takes_back for run in self._runs if run.matches(path, is_directory=is_directory)), None)


@dataclass(frozen=True, slots=True)
class IgnoreRules:
    """The ignore files that count in one directory: its own, then those of the directories above.

    Paths are relative to the root of the search. `lead` leads from the rules' directory to that root when it is above
    it, `depth` is the number of characters that lead from the root to the rules' directory when it is below.
    """

    files: Mapping[str, IgnoreFile]
    has_repository: bool
    above: "IgnoreRules | None"
    lead: str = ""
    depth: int = 0

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        verdicts = (self._verdict(kind, path, is_directory=is_directory) for kind in KINDS)
        return next((verdict for verdict in verdicts if verdict is not None), False)

    def entered(self, directory: Path, path: str, names: Collection[str]) -> "IgnoreRules":
        """Return the rules in a directory below the root, given what is in it."""
        kinds = [kind for kind in KINDS if kind in names]
        if not kinds and ".git" not in names:
            return self
        return IgnoreRules(_load(directory, kinds), ".git" in names, self, depth=len(path) + 1 if path else 0)

    def _verdict(self, kind: str, path: str, *, is_directory: bool) -> bool | None:
        """Return what the nearest file of a kind that is about the path says.

        A `.gitignore` counts within the repository that it belongs to, and nowhere else.
        """
        if kind == GIT_IGNORE and not any(rules.has_repository for rules in self._upwards()):
            return None
        for rules in self._upwards():
            if kind in rules.files:
                relative = rules.lead + path[rules.depth :]
                verdict = rules.files[kind].ignores(relative, is_directory=is_directory)
                if verdict is not None:
                    return verdict
            if kind == GIT_IGNORE and rules.has_repository:
                return None
        return None

    def _upwards(self) -> "Iterator[IgnoreRules]":
        rules: IgnoreRules | None = self
        while rules is not None:
            yield rules
            rules = rules.above


NO_RULES = IgnoreRules({}, False, None)


def rules_above(root: Path) -> IgnoreRules:
    """Return what the directories above a resolved root say about what is in it."""
    rules = NO_RULES
    for directory in reversed(root.parents):
        kinds = [kind for kind in KINDS if (directory / kind).is_file()]
        has_repository = (directory / ".git").exists()
        if kinds or has_repository:
            lead = f"{root.relative_to(directory)}/"
            rules = IgnoreRules(_load(directory, kinds), has_repository, rules, lead=lead)
    return rules


def _load(directory: Path, kinds: list[str]) -> dict[str, IgnoreFile]:
    files = {}
    for kind in kinds:
        try:
            data = read_start(directory / kind, _MAX_BYTES)
        except OSError:
            continue
        files[kind] = IgnoreFile(data.decode("utf-8", "replace"))
    return files


@dataclass(frozen=True, slots=True)
class _Line:
    expression: str
    takes_back: bool
    only_directories: bool


def _parse(line: str) -> _Line | None:
    line = _TRAILING_SPACE.sub("", line.removesuffix("\r"))
    if not line or line.startswith("#"):
        return None
    takes_back = line.startswith("!")
    pattern = line.removeprefix("!")
    only_directories = pattern.endswith("/")
    pattern = pattern.rstrip("/") if only_directories else pattern
    components = split_components(pattern)
    if not components:
        return None
    if "/" not in pattern:
        components = split_components(f"{ANY_DEPTH}/{pattern}")
    return _Line(path_regex(components), takes_back, only_directories)


def _run(takes_back: bool, lines: list[_Line]) -> _Run:
    return _Run(
        takes_back,
        for_directories=_any_of(line.expression for line in lines),
        for_all=_any_of(line.expression for line in lines if not line.only_directories),
    )


def _any_of(expressions: Iterator[str]) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{expression})" for expression in expressions) or "(?!)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Listing:
    """One directory: the directories to go on with, everything else, and what the ignore files say there.

    `path` is relative to the root and ends with a slash unless it is empty.
    """

    path: str
    directories: list[str]
    others: "list[os.DirEntry[str]]"
    ignored: list[str]
    rules: IgnoreRules

    def ignores(self, name: str) -> bool:
        """True if a file in this directory is left out by an ignore file."""
        return self.rules.ignores(self.path + name, is_directory=False)


@dataclass(slots=True)
class Tree:
    """The tree below a root. Symbolic links to directories are entries like files: they are never followed.

    `is_denied` is asked about every entry, by its path relative to the root.
    """

    root: Path
    exclusions: frozenset[str]
    watch: Watch
    skip_hidden: bool
    respect_ignore_files: bool
    is_denied: Callable[[str], bool]
    warnings: list[str] = field(default_factory=list)

    def start(self) -> Listing | None:
        """List the root."""
        return self.open("", rules_above(Path(os.path.realpath(self.root))) if self.respect_ignore_files else NO_RULES)

    def enter(self, listing: Listing, name: str) -> Listing | None:
        """List a directory of a listing; one that cannot be read is noted and skipped."""
        return self.open(f"{listing.path}{name}/", listing.rules)

    def walk(self) -> Iterator[Listing]:
        """List the root and every directory below it."""
        if (root := self.start()) is None:
            return
        waiting = [root]
        while waiting:
            listing = waiting.pop()
            yield listing
            waiting += filter(None, (self.enter(listing, name) for name in listing.directories))

    def open(self, path: str, rules: IgnoreRules) -> Listing | None:
        self.watch.check()
        directory = self.root / path
        try:
            with os.scandir(directory) as found:
                entries = list(found)
        except OSError as exc:
            self.warnings.append(f"{directory}: {exc.strerror}")
            return None
        if self.respect_ignore_files:
            rules = rules.entered(directory, path.removesuffix("/"), {entry.name for entry in entries})
        listing = Listing(path, [], [], [], rules)
        for entry in entries:
            self.watch.check()
            self._place(entry, listing)
        return listing

    def _place(self, entry: "os.DirEntry[str]", listing: Listing) -> None:
        if (self.skip_hidden and entry.name.startswith(".")) or self.is_denied(listing.path + entry.name):
            return
        if not entry.is_dir(follow_symlinks=False):
            listing.others.append(entry)
        elif entry.name not in self.exclusions:
            is_ignored = listing.rules.ignores(listing.path + entry.name, is_directory=True)
            (listing.ignored if is_ignored else listing.directories).append(entry.name)


# Opening files that may be anything: no waiting for a pipe, no device, no guessing at encodings.


_BINARY_PROBE_BYTES = 8192


class NotSearchedError(OSError):
    """The file is not one that can be searched, or not one that may be."""


def open_regular(path: str, *, max_size: int = 0, may_read: Callable[[str], bool] | None = None) -> int:
    """Return a descriptor of a regular file of at most `max_size` bytes, 0 for any size.

    `may_read` is asked about where the open file really lies.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        problem = _find_problem(descriptor, max_size)
        if problem is None and may_read is not None:
            place = real_name(descriptor) or os.path.realpath(path)
            problem = None if may_read(place) else "not to be read"
    except BaseException:
        os.close(descriptor)
        raise
    if problem is not None:
        os.close(descriptor)
        raise NotSearchedError(problem)
    return descriptor


def read_start(path: Path, limit: int) -> bytes:
    """Return up to `limit` bytes of a regular file."""
    descriptor = open_regular(str(path))
    try:
        return os.pread(descriptor, limit, 0)
    finally:
        os.close(descriptor)


def is_binary(descriptor: int) -> bool:
    """True if an open file is skipped when directories are searched."""
    head = os.pread(descriptor, _BINARY_PROBE_BYTES, 0)
    return b"\0" in head or head.startswith((BOM_UTF16_LE, BOM_UTF16_BE))


def open_text(descriptor: int) -> TextIO:
    """Return an open file as text: without its mark, and with a sign in place of what is not text.

    Lines end with a line feed and nothing else. The descriptor is closed with what is returned.
    """
    is_wide = os.pread(descriptor, 2, 0) in (BOM_UTF16_LE, BOM_UTF16_BE)
    return os.fdopen(descriptor, encoding="utf-16" if is_wide else "utf-8-sig", errors="replace", newline="\n")


def _find_problem(descriptor: int, max_size: int) -> str | None:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        return "not a regular file"
    return "too large" if max_size and found.st_size > max_size else None
