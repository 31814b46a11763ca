"""The tool `edit_file`: replace an exact text in a file by another."""

import stat
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from amplifier_core.events import ARTIFACT_WRITE
from amplifier_kit.tools.effects import READ, WRITE
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import shown as as_text

from .entry import Entry
from .file_tool import FileTool
from .near_miss import hint_for
from .text_format import TextFormat, is_binary

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
        limit = self.workspace.settings.max_write_bytes
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
