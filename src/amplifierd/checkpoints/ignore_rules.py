"""Which files of a tree count: the `.gitignore` files in it and above it, read as plain files, never through git."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

IGNORE_FILE = ".gitignore"
REPOSITORY = ".git"
LARGEST_FILE = 1024 * 1024  # bytes of an ignore file; a larger one is not read


@dataclass(frozen=True)
class IgnoreFile:
    """One file of patterns: `base` is the directory it lies in, `above` the way from there down to the root if it lies
    outside; one of them is empty."""

    base: str
    above: str
    text: str

    @cached_property
    def patterns(self) -> tuple[Pattern, ...]:
        return parse_patterns(self.text)

    def verdict(self, names: list[str], *, is_directory: bool) -> bool | None:
        """True if a path is ignored, None when no pattern is about it; the last one that fits decides."""
        depth = self.base.count("/") + 1 if self.base else 0
        names = self.above.split("/") + names if self.above else names[depth:]
        for pattern in reversed(self.patterns):
            if pattern.matches(names, is_directory=is_directory):
                return not pattern.is_negated
        return None


@dataclass(frozen=True)
class IgnoreChain:
    """The files that decide about what is in one directory, the nearest last."""

    files: tuple[IgnoreFile, ...] = ()

    def ignores(self, path: str, *, is_directory: bool) -> bool:
        """True if a path is ignored whose directory is not."""
        names = path.split("/")
        if names[-1].lower() == REPOSITORY:
            return True
        verdicts = (file.verdict(names, is_directory=is_directory) for file in reversed(self.files))
        return next((verdict for verdict in verdicts if verdict is not None), False)

    def with_file(self, file: IgnoreFile) -> IgnoreChain:
        return IgnoreChain((*self.files, file))

    @cached_property
    def fingerprint(self) -> str:
        """What changes when anything of the chain does."""
        digest = hashlib.sha1(usedforsecurity=False)
        for file in self.files:
            for part in (file.base, file.above, file.text):
                digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
        return digest.hexdigest()


@dataclass(frozen=True)
class IgnoreRules:
    """All ignore files of a tree at one moment, so that later it can be said what was not looked at."""

    outer: IgnoreChain = IgnoreChain()
    inner: Mapping[str, IgnoreFile] = field(default_factory=dict)
    _chains: dict[str, IgnoreChain | None] = field(default_factory=dict, compare=False, repr=False)

    def ignores(self, path: str) -> bool:
        """True if a path, or a directory above it, was ignored. A path may have been a directory itself."""
        chain = self._chain_in(path.rpartition("/")[0])
        if chain is None:
            return True
        return chain.ignores(path, is_directory=True) or chain.ignores(path, is_directory=False)

    def _chain_in(self, folder: str) -> IgnoreChain | None:
        """Return the files that decide about what is in a directory, None when it is ignored itself."""
        if folder in self._chains:
            return self._chains[folder]
        chain: IgnoreChain | None = self.outer
        names = folder.split("/") if folder else []
        for depth in range(len(names) + 1):
            here = "/".join(names[:depth])
            if here not in self._chains:
                if chain is not None and here and chain.ignores(here, is_directory=True):
                    chain = None
                elif chain is not None and here in self.inner:
                    chain = chain.with_file(self.inner[here])
                self._chains[here] = chain
            chain = self._chains[here]
        return chain

    def to_json(self) -> dict[str, Any]:
        outer = [[file.above, file.text] for file in self.outer.files]
        return {"outer": outer, "inner": {base: file.text for base, file in self.inner.items()}}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> IgnoreRules:
        outer = IgnoreChain(tuple(IgnoreFile("", above, text) for above, text in value["outer"]))
        return cls(outer, {base: IgnoreFile(base, "", text) for base, text in value["inner"].items()})


def read_outer_rules(root: Path) -> IgnoreChain:
    """Return what the repository around a directory says about it: the ignore files above it, and `info/exclude`.

    A directory that the repository ignores has been chosen in spite of that, and none of it counts there.
    """
    repository = next((each for each, mark in _marks(root) if os.path.exists(mark)), None)  # noqa: PTH110 - every turn
    if repository is None:
        return IgnoreChain()
    exclude = _read(repository / REPOSITORY / "info" / "exclude")
    above = [each for each in reversed(root.parents) if each.is_relative_to(repository)]
    texts = {each: text for each in above if (text := _read(each / IGNORE_FILE))}
    if root != repository:
        first = IgnoreChain((IgnoreFile("", "", exclude),))
        inner = {base: IgnoreFile(base, "", text) for each, text in texts.items() for base in [_way(repository, each)]}
        rules = IgnoreRules(first, inner)
        if rules.ignores(_way(repository, root)):
            return IgnoreChain()
    files = [(repository, exclude), *texts.items()]
    return IgnoreChain(tuple(IgnoreFile("", _way(each, root), text) for each, text in files if text))


@lru_cache
def _marks(root: Path) -> tuple[tuple[Path, str], ...]:
    """Return a directory and those above it, each with what makes it a repository."""
    return tuple((each, str(each / REPOSITORY)) for each in (root, *root.parents))


def _way(start: Path, end: Path) -> str:
    """Return the path from a directory down to another, empty when they are the same."""
    return "" if start == end else end.relative_to(start).as_posix()


def _read(file: Path) -> str:
    """Return the text of an ignore file, nothing when it is not a plain file that can be read."""
    try:
        if not file.is_file() or file.is_symlink() or file.stat().st_size > LARGEST_FILE:
            return ""
        return file.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""


# The patterns of one `.gitignore`, matched in linear time: what stands in a stranger's repository cannot stall us.
#
# A star becomes an atomic group that takes the earliest fit, so no text and no pattern makes the matching go back.


_ANYWHERE = "**"
_CLASSES = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "digit": "0-9", "lower": "a-z", "upper": "A-Z",
    "punct": r"!-/:-@\[-`{-~", "space": r"\s", "xdigit": "0-9a-fA-F",
}  # fmt: skip

Fits = Callable[[str], object]


@dataclass(frozen=True)
class Pattern:
    """One line of a `.gitignore`: the names of a path it has to fit, None in the place of `**`."""

    parts: tuple[Fits | None, ...]
    is_negated: bool
    only_directories: bool
    only_name: bool

    def matches(self, names: Sequence[str], *, is_directory: bool) -> bool:
        if self.only_directories and not is_directory:
            return False
        if self.only_name:
            (fits,) = self.parts
            return fits is None or bool(fits(names[-1]))
        return _fit(self.parts, names)


def parse_patterns(text: str) -> tuple[Pattern, ...]:
    """Return the patterns of a file, in its order; lines that can match nothing are left out."""
    lines = (line.removesuffix("\r") for line in text.removeprefix("\ufeff").split("\n"))
    return tuple(pattern for line in lines if (pattern := _parse(line)))


def _parse(line: str) -> Pattern | None:
    line = _without_trailing_spaces(line)
    if not line or line.startswith("#"):
        return None
    is_negated = line.startswith("!")
    line = line.removeprefix("!")
    only_directories = line.endswith("/")
    line = line.removesuffix("/")
    only_name = "/" not in line
    try:
        names = _split(line.removeprefix("/"))
        if not all(names):
            return None
        parts = tuple(None if name == _ANYWHERE else re.compile(_translate(name), re.DOTALL).match for name in names)
    except re.error:
        return None
    return Pattern(parts, is_negated, only_directories, only_name)


def _split(pattern: str) -> list[str]:
    """Return the patterns of the single names; a slash in brackets is just one that no name has."""
    names = [""]
    place = 0
    while place < len(pattern):
        end = place + 1
        if pattern[place] == "[":
            _, end = _translate_set(pattern, end)
        elif pattern[place] == "\\":
            end += 1
        piece, place = pattern[place:end], end
        if piece in ("/", "\\/"):
            names.append("")
        else:
            names[-1] += piece
    return names


def _without_trailing_spaces(line: str) -> str:
    bare = line.rstrip(" ")
    backslashes = len(bare) - len(bare.rstrip("\\"))
    return bare + " " if backslashes % 2 and len(bare) < len(line) else bare


def _fit(parts: Sequence[Fits | None], names: Sequence[str]) -> bool:
    """True if the names fit, one by one; `**` stands for any number of them, at the end for at least one."""
    part = name = 0
    resume: tuple[int, int] | None = None
    while name < len(names):
        fits = parts[part] if part < len(parts) else _nothing
        if fits is None:
            if part == len(parts) - 1:
                return True
            part += 1
            resume = (part, name)
        elif fits(names[name]):
            part, name = part + 1, name + 1
        elif resume:
            part, name = resume[0], resume[1] + 1
            resume = (part, name)
        else:
            return False
    return part == len(parts)


def _nothing(name: str) -> bool:
    return False


def _translate(glob: str) -> str:
    """Return the regular expression of a pattern for one name."""
    segments: list[str] = [""]
    place = 0
    while place < len(glob):
        sign = glob[place]
        place += 1
        if sign == "*":
            if segments[-1] or len(segments) == 1:
                segments.append("")
        elif sign == "?":
            segments[-1] += "."
        elif sign == "[":
            piece, place = _translate_set(glob, place)
            segments[-1] += piece
        else:
            if sign == "\\":
                if place == len(glob):
                    raise re.error("a backslash at the end escapes nothing")
                sign, place = glob[place], place + 1
            segments[-1] += re.escape(sign)
    first, *rest = segments
    if not rest:
        return rf"{first}\Z"
    *middle, last = rest
    return first + "".join(f"(?>.*?{segment})" for segment in middle) + rf".*{last}\Z"


def _translate_set(glob: str, place: int) -> tuple[str, int]:
    """Return the expression of a set in brackets, whose inside begins at `place`, and where it ends."""
    is_negated = glob[place : place + 1] in ("!", "^")
    place += is_negated
    members = ""
    is_first = True
    while is_first or glob[place : place + 1] != "]":
        if place >= len(glob):
            raise re.error("a bracket is not closed")
        if found := re.compile(r"\[:([a-z]+):\]").match(glob, place):
            members += _CLASSES.get(found[1], "")
            place = found.end()
        else:
            first, place = _read_member(glob, place)
            members += re.escape(first)
            if glob[place : place + 1] == "-" and glob[place + 1 : place + 2] not in ("]", ""):
                last, place = _read_member(glob, place + 1)
                members += f"-{re.escape(last)}" if last >= first else ""  # to git, a range that runs back has a start
        is_first = False
    return f"[{'^' if is_negated else ''}{members}]", place + 1


def _read_member(glob: str, place: int) -> tuple[str, int]:
    """Return the sign of a set at a place, and where the next one is."""
    place += glob[place] == "\\"
    if place == len(glob):
        raise re.error("a bracket is not closed")
    return glob[place], place + 1
