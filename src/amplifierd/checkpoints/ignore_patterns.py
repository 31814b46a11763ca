"""The patterns of one `.gitignore`, matched in linear time: what stands in a stranger's repository cannot stall us.

A star becomes an atomic group that takes the earliest fit, so no text and no pattern makes the matching go back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
    """Say whether the names fit, one by one; `**` stands for any number of them, at the end for at least one."""
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
