"""The tool `edit_file`: replace an exact text in a file by another."""

import re
import stat
import time
from collections.abc import Mapping
from difflib import SequenceMatcher
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from amplifier_core.events import ARTIFACT_WRITE
from amplifier_kit.tools.effects import READ, WRITE
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import shown as as_text
from amplifier_kit.tools.workspace import Entry, TextFormat, is_binary

from .file_tool import FileTool

_LISTED_OCCURRENCES = 100


class EditTool(FileTool):
    name = "edit_file"
    effects = frozenset({READ, WRITE})
    description = (
        "Replace an exact text in a file. old_string must occur exactly once, white space included, unless "
        "replace_all is set; give enough lines around it to make it unique, and leave out the line numbers that "
        "read_file shows. To create a file or to replace all of it use write_file instead."
    )
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "file_path": {
                "type": "string",
                "description": "The file: absolute, relative to the working directory, ~ or an @mention.",
            },
            "old_string": {"type": "string", "description": "The text to replace, exactly as it is in the file."},
            "new_string": {"type": "string", "description": "The text to put in its place."},
            "replace_all": {
                "type": "boolean",
                "default": False,
                "description": "Replace every occurrence instead of the only one.",
            },
        },
        "required": ["file_path", "old_string", "new_string"],
    }
    texts: ClassVar[Mapping[str, str]] = {"file_path": "file_path is required", "old_string": "old_string is required"}
    event = ARTIFACT_WRITE
    risk_level = "medium"
    os_error = "OS error writing file"

    def check(self, given: dict[str, Any]) -> None:
        if given["old_string"] == given["new_string"]:
            raise ToolFailure("old_string and new_string are the same; there is nothing to change", "invalid_input")

    def work(self, shown: Path, given: dict[str, Any], stop: Event) -> tuple[dict[str, Any], int | None]:
        file_path = given["file_path"]
        missing = ToolFailure(f"File not found: {file_path}", "not_found")

        def edit(entry: Entry) -> tuple[dict[str, Any], int | None]:
            old = entry.stat()
            if old is None:
                raise missing
            if not stat.S_ISREG(old.st_mode):
                code = "is_directory" if stat.S_ISDIR(old.st_mode) else "not_regular_file"
                raise ToolFailure(f"Not a regular file: {file_path}", code)
            data = self._read(entry, file_path)
            objection = self.workspace.seen.find_objection(entry, old)
            changed, output = _edited(data, given)
            self.require_size(changed)
            self.workspace.seen.remember(entry, entry.replace(changed, old, stop))
            output = {"file_path": as_text(shown), **output, "bytes_written": len(changed)}
            return output if objection is None else {**output, "warning": objection}, len(changed)

        try:
            return self.workspace.visit(shown, file_path, "edit", edit)
        except (FileNotFoundError, NotADirectoryError):
            raise missing from None

    def _read(self, entry: Entry, file_path: str) -> bytes:
        limit = self.settings.max_write_bytes
        with entry.opened() as file:
            data = file.read(limit + 1)
        if is_binary(data):
            raise ToolFailure(f"Cannot edit binary file: {file_path}", "binary_file")
        if len(data) > limit:
            raise ToolFailure(f"The file has more than {limit} bytes, too many to edit: {file_path}", "too_large")
        return data


def _edited(data: bytes, given: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Return a file's new contents and what was done; raises `ToolFailure` when that is impossible or unclear."""
    file_path, replace_all = given["file_path"], given["replace_all"]
    style = TextFormat.of(data)
    text = style.normalised(style.decode(data))
    old, new = style.normalised(given["old_string"]), style.normalised(given["new_string"])
    count = text.count(old)
    if count == 0:
        message = f"old_string not found in file: {file_path}"
        details = {"old_string": given["old_string"], "hint": hint_for(old, text)}
        raise ToolFailure(message, "not_found", **{k: v for k, v in details.items() if v})
    if count > 1 and not replace_all:
        raise ToolFailure(
            f"old_string occurs {count} times in file: {file_path}; add lines around it or set replace_all",
            "not_unique",
            occurrences=count,
            old_string=given["old_string"],
            line_numbers=_line_numbers(text, old),
        )
    changed = style.encode(text.replace(old, new))
    return changed, {"replacements_made": count, "first_line": _line_numbers(text, old)[0]}


def _line_numbers(text: str, wanted: str) -> list[int]:
    """Return the lines where a text begins, the first hundred of them."""
    numbers: list[int] = []
    number, position = 1, 0
    found = text.find(wanted)
    while found >= 0 and len(numbers) < _LISTED_OCCURRENCES:
        number += text.count("\n", position, found)
        numbers.append(number)
        position, found = found, text.find(wanted, found + len(wanted))
    return numbers


# Why a text was not found: what a model most likely did wrong.
#
# A hint is worth a moment, no more: what is looked at, and for how long, is bounded, and every step takes time in
# proportion to what it looks at.


_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)
_MAX_CHARS = 200_000
_MAX_WORDS = 2000
_MAX_LINE_CHARS = 200
_MAX_SECONDS = 0.1
_ALIKE = 0.6


def hint_for(wanted: str, text: str) -> str:
    """Return one sentence that helps to find `wanted` in `text`, empty when there is nothing alike."""
    unnumbered = _NUMBERED.sub("", wanted)
    if unnumbered != wanted and unnumbered in text:
        return "old_string has the line numbers that read_file shows; leave them out."
    looked_at = text[:_MAX_CHARS]
    if line := _line_with_other_space(wanted, looked_at):
        return f"Line {line} has the same words with different white space; copy them exactly."
    return _nearest_line(wanted, looked_at)


def _line_with_other_space(wanted: str, text: str) -> int | None:
    words = wanted[:_MAX_CHARS].split()
    if not words or len(words) > _MAX_WORDS:
        return None
    found = f" {' '.join(text.split())} ".find(f" {' '.join(words)} ")
    if found < 0:
        return None
    words_before = " ".join(text.split())[:found].count(" ") + (found > 0)
    for number, line in enumerate(text.split("\n"), start=1):
        words_before -= len(line.split())
        if words_before < 0:
            return number
    return None


def _nearest_line(wanted: str, text: str) -> str:
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")[:_MAX_LINE_CHARS]
    lines = [line.strip()[:_MAX_LINE_CHARS] for line in text.split("\n")]
    if first in lines:
        return f"Line {lines.index(first) + 1} matches the first line of old_string, but what follows it differs."
    deadline = time.monotonic() + _MAX_SECONDS
    best, number = _ALIKE, 0
    comparison = SequenceMatcher(b=first, autojunk=False)
    for index, line in enumerate(lines, start=1):
        if time.monotonic() > deadline:
            break
        if not line:
            continue
        comparison.set_seq1(line)
        if comparison.real_quick_ratio() > best and comparison.quick_ratio() > best and comparison.ratio() > best:
            best, number = comparison.ratio(), index
    return f"The nearest line is {number}: {lines[number - 1]}" if number else ""
