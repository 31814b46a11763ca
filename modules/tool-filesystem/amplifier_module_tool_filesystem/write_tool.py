"""The tool `write_file`: make a text the contents of a file."""

import stat
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from amplifier_core.events import ARTIFACT_WRITE
from amplifier_kit.tools.effects import READ, WRITE
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import shown as as_text
from amplifier_kit.tools.workspace import Entry, TextFormat, is_binary

from .file_tool import FileTool


class WriteTool(FileTool):
    name = "write_file"
    effects = frozenset({READ, WRITE})
    description = (
        "Create a file or replace all of its contents; missing directories are made. The line endings of an existing "
        "text file are kept. To change a part of a file use edit_file instead."
    )
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "file_path": {
                "type": "string",
                "description": "The file: absolute, relative to the working directory, ~ or an @mention.",
            },
            "content": {"type": "string", "description": "The whole new contents."},
        },
        "required": ["file_path", "content"],
    }
    event = ARTIFACT_WRITE
    risk_level = "medium"
    os_error = "OS error writing file"

    def work(self, shown: Path, given: dict[str, Any], stop: Event) -> tuple[dict[str, Any], int | None]:
        file_path, content = given["file_path"], given["content"]

        def write(entry: Entry) -> tuple[dict[str, Any], int | None]:
            old = entry.stat()
            if old is not None and stat.S_ISDIR(old.st_mode):
                raise ToolFailure(f"Cannot write to directory: {file_path}", "is_directory")
            if old is not None and not stat.S_ISREG(old.st_mode):
                raise ToolFailure(f"Not a regular file: {file_path}", "not_regular_file")
            objection = self.workspace.seen.find_objection(entry, old)
            data = (TextFormat() if old is None else self._format_of(entry)).encode(content)
            self.require_size(data)
            self.workspace.seen.remember(entry, entry.replace(data, old, stop))
            output = {"file_path": as_text(shown), "bytes": len(data), "created": old is None}
            return output if objection is None else {**output, "warning": objection}, len(data)

        self.require_size(content.encode("utf-8", "replace"))
        return self.workspace.visit(shown, file_path, "write", write)

    def _format_of(self, entry: Entry) -> TextFormat:
        """Return how the file is written down, as far as a new text has to follow it."""
        with entry.opened() as file:
            data = file.read(self.settings.max_read_bytes)
        if is_binary(data):
            return TextFormat()
        found = TextFormat.of(data)
        return TextFormat(has_mark=found.has_mark, line_end=found.line_end)
