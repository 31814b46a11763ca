"""Patches as models write them: the envelope, the diff of one file, and unified diffs; and how hunks meet a file."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from amplifier_kit.tools.input import ToolFailure

Kind = Literal["add", "update", "delete"]

BEGIN, END = "*** Begin Patch", "*** End Patch"
END_OF_FILE = "*** End of File"

_ADD, _UPDATE, _DELETE, _MOVE = "*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: "
_RANGE = re.compile(r"@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@ ?(.*)")
_NO_END = "\\ No newline at end of file"
_UNIFIED_HEADS = (
    *("diff --git ", "index ", "new file mode ", "deleted file mode ", "old mode ", "new mode "),
    *("similarity index ", "rename from ", "rename to ", "--- ", "+++ "),
)


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines that stay (` `), go (`-`) and come (`+`), and where: after an anchor, near a line, at the end."""

    lines: tuple[tuple[str, str], ...]
    anchor: str = ""
    near: int | None = None
    is_at_end: bool = False

    @property
    def old(self) -> list[str]:
        return [text for sign, text in self.lines if sign != "+"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a patch does to one file."""

    kind: Kind
    path: str
    content: str = ""
    hunks: tuple[Hunk, ...] = ()
    move_to: str | None = None


def parse_patch(text: str) -> list[Change]:
    """Return the changes of a patch in an envelope, or of a unified diff; raises `ToolFailure`."""
    lines = text.strip("\n").splitlines()
    if lines and lines[0].strip() == BEGIN:
        changes = list(_enveloped(lines))
    elif any(line.startswith("+++ ") for line in lines):
        changes = list(_unified(lines))
    else:
        raise _invalid(f"it must begin with '{BEGIN}' and end with '{END}', or be a unified diff")
    if not changes:
        raise _invalid("it names no file")
    paths = [change.path for change in changes]
    if doubled := next((path for path in paths if paths.count(path) > 1), None):
        raise _invalid(f"it names {doubled} more than once; put all hunks of a file under one header")
    return changes


def parse_operation(kind: str, path: str, diff: str) -> Change:
    """Return the change of an operation on one file, as OpenAI's own patch tool has it; raises `ToolFailure`."""
    if any(line.startswith(("*** Begin", "*** End Patch", _ADD, _UPDATE, _DELETE)) for line in diff.splitlines()):
        raise _invalid(
            "diff has the markers of an envelope; give only the lines of this file's diff, or the whole envelope as "
            "'patch'"
        )
    lines = [line for line in diff.split("\n") if not line.startswith(_UNIFIED_HEADS)]
    if lines and not lines[-1]:
        lines.pop()
    if kind == "delete_file":
        return Change("delete", path)
    if kind == "create_file":
        lines = [line for line in lines if not _RANGE.match(line) and line != _NO_END]
        return Change("add", path, _content([line if line.startswith("+") else f"+{line}" for line in lines]))
    if kind == "update_file":
        return Change("update", path, hunks=_hunks(lines, path))
    raise _invalid(f"type {kind!r} is none of create_file, update_file, delete_file")


def _enveloped(lines: Sequence[str]) -> Iterator[Change]:
    if lines[-1].strip() != END:
        raise _invalid(f"it does not end with '{END}'")
    body, place = lines[1:-1], 0
    while place < len(body):
        head = body[place].rstrip()
        end = place + 1
        while end < len(body) and not body[end].startswith((_ADD, _UPDATE, _DELETE)):
            end += 1
        block = list(body[place + 1 : end])
        place = end
        if head.startswith(_ADD):
            path = head.removeprefix(_ADD).strip()
            if wrong := next((line for line in block if not line.startswith("+")), None):
                raise _invalid(f"line {wrong!r} of the new file {path} does not begin with +")
            yield Change("add", path, _content(block))
        elif head.startswith(_DELETE):
            yield Change("delete", head.removeprefix(_DELETE).strip())
        elif head.startswith(_UPDATE):
            path = head.removeprefix(_UPDATE).strip()
            target = block.pop(0).removeprefix(_MOVE).strip() if block and block[0].startswith(_MOVE) else None
            yield Change("update", path, hunks=_hunks(block, path, may_be_empty=target is not None), move_to=target)
        elif head:
            raise _invalid(f"line {head!r} is no header of a file")


def _unified(lines: Sequence[str]) -> Iterator[Change]:
    starts = [place for place, line in enumerate(lines) if line.startswith("+++ ") and place]
    for number, start in enumerate(starts):
        end = starts[number + 1] - 1 if number + 1 < len(starts) else len(lines)
        old, new = _unified_path(lines[start - 1], "--- "), _unified_path(lines[start], "+++ ")
        block = [line for line in lines[start + 1 : end] if not line.startswith(_UNIFIED_HEADS[:-2])]
        if new is None:
            yield Change("delete", old or "")
        elif old is None:
            yield Change("add", new, _content([line for line in block if line.startswith("+")]))
        else:
            yield Change("update", old, hunks=_hunks(block, old), move_to=new if new != old else None)


def _unified_path(line: str, head: str) -> str | None:
    name = line.removeprefix(head).split("\t")[0].strip()
    return None if name == "/dev/null" else re.sub(r"^[ab]/", "", name)


def _hunks(lines: Sequence[str], path: str, *, may_be_empty: bool = False) -> tuple[Hunk, ...]:
    found: list[Hunk] = []
    anchor, near, body, is_at_end = "", None, list[tuple[str, str]](), False

    def finish() -> None:
        nonlocal body, is_at_end
        if body:
            found.append(Hunk(tuple(body), anchor, near, is_at_end))
        body, is_at_end = [], False

    for line in lines:
        if line.startswith("@@"):
            finish()
            ranged = _RANGE.match(line)
            near = int(ranged[1]) if ranged else None
            anchor = "" if ranged else line.removeprefix("@@").removesuffix("@@").strip()
        elif line.rstrip() == END_OF_FILE:
            is_at_end = True
        elif line == _NO_END:
            continue
        elif not line or line[0] in " +-":
            body.append((line[:1] or " ", line[1:]))
        else:
            raise _invalid(f"line {line!r} of the diff of {path} begins with none of space, + and -")
    finish()
    if not found and not may_be_empty:
        raise _invalid(f"the diff of {path} changes nothing")
    return tuple(found)


def _content(lines: Sequence[str]) -> str:
    return "".join(f"{line[1:]}\n" for line in lines)


def _invalid(problem: str) -> ToolFailure:
    return ToolFailure(f"The patch cannot be read: {problem}", "invalid_patch")


# Where hunks belong, and what a file becomes.

_SAMENESS: tuple[Callable[[str], str], ...] = (lambda line: line, str.rstrip, str.strip)
_SHOWN_LINES = 200


def patched(text: str, change: Change) -> str:
    """Return a file's text with the hunks of a change applied; raises `ToolFailure` where one does not fit.

    Lines that stay are those of the file, however the patch spells their white space. A file without a newline at its
    end goes on without one.
    """
    ends = text.endswith("\n") or not text
    lines = text.split("\n")
    if ends:
        lines.pop()
    changed: list[str] = []
    done = 0
    for hunk in change.hunks:
        start = _place_of(hunk, lines, done, text, change.path)
        changed += lines[done:start]
        done = start
        for sign, line in hunk.lines:
            if sign == "+":
                changed.append(line)
            else:
                changed += [lines[done]] if sign == " " else []
                done += 1
    changed += lines[done:]
    return "\n".join(changed) + ("\n" if ends and changed else "")


def _place_of(hunk: Hunk, lines: Sequence[str], begin: int, text: str, path: str) -> int:
    """Return the line at which a hunk begins, counted from 0."""
    if hunk.anchor:
        anchored = _matches([hunk.anchor], lines, begin)
        if not anchored:
            raise _mismatch(f"the anchor {hunk.anchor!r} is not in {path}", text)
        begin = anchored[0] + 1
    old = hunk.old
    if not old:
        return begin if hunk.anchor else min(hunk.near, len(lines)) if hunk.near is not None else len(lines)
    places = _matches(old, lines, begin)
    if hunk.is_at_end:
        places = [place for place in places if place + len(old) == len(lines)] or places[-1:]
    if not places:
        raise _mismatch(f"{path} has no lines like {old[0]!r} and those after it in the patch", text)
    if hunk.near is not None:
        return min(places, key=lambda place: abs(place + 1 - (hunk.near or 0)))
    if len(places) > 1 and not hunk.anchor:
        numbers = ", ".join(str(place + 1) for place in places[:20])
        raise ToolFailure(
            f"The patch is ambiguous: the lines of a hunk stand in {path} at lines {numbers}; give more lines around "
            "it, or an anchor after @@",
            "ambiguous_context",
            line_numbers=[place + 1 for place in places[:20]],
        )
    return places[0]


def _matches(wanted: Sequence[str], lines: Sequence[str], begin: int) -> list[int]:
    """Return where lines stand, as exactly as anything does: to the letter, without white space at the end, or any."""
    for same in _SAMENESS:
        sought, known = [same(line) for line in wanted], [same(line) for line in lines[begin:]]
        last = len(known) - len(sought)
        found = [place + begin for place in range(last + 1) if known[place : place + len(sought)] == sought]
        if found:
            return found
    return []


def _mismatch(problem: str, text: str) -> ToolFailure:
    return ToolFailure(
        f"The patch does not fit: {problem}. The file is now:\n{numbered(text)}", "context_mismatch", problem=problem
    )


def numbered(text: str) -> str:
    """Return a text with line numbers: of a long one two thirds from its beginning and one third from its end."""
    lines = [f"{number:6}\t{line}" for number, line in enumerate(text.splitlines(), start=1)]
    if len(lines) <= _SHOWN_LINES:
        return "\n".join(lines)
    tail = _SHOWN_LINES // 3
    head = _SHOWN_LINES - tail
    return "\n".join([*lines[:head], f"… {len(lines) - _SHOWN_LINES} lines …", *lines[-tail:]])
