"""What `.gitignore` and its relatives leave out of a search."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from .glob_pattern import ANY_DEPTH, path_regex, split_components
from .regular_file import read_start

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
        """Say whether a path, relative to the file's directory, is left out; None when no line is about it."""
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
