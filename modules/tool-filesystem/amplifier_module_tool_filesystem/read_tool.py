"""The tool `read_file`: numbered lines of a text file, or the entries of a directory."""

import os
import stat
from pathlib import Path
from threading import Event
from typing import Any, ClassVar

from amplifier_core.events import ARTIFACT_READ
from amplifier_kit.tools.effects import READ
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import shown as as_text

from .entry import Entry
from .file_tool import FileTool
from .line_window import read_window
from .text_format import BINARY_PROBE_BYTES, is_binary

DEFAULT_LIMIT = 2000


class ReadTool(FileTool):
    name = "read_file"
    effects = frozenset({READ})
    retry = "safe"
    description = (
        "Read a text file, or list a directory. Lines come numbered, 2000 at a time unless limit says otherwise; "
        "lines over 2000 characters are cut, and next_offset says where to continue. The numbers are not part of the "
        "file. Binary files are recognised, not shown. To find text in many files use a search tool instead."
    )
    input_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "properties": {
            "file_path": {
                "type": "string",
                "description": "The file or directory: absolute, relative to the working directory, ~ or an @mention.",
            },
            "offset": {"type": "integer", "description": "The first line to read, counted from 1. Default 1."},
            "limit": {"type": "integer", "description": "How many lines to read. Default 2000."},
        },
        "required": ["file_path"],
    }
    event = ARTIFACT_READ
    risk_level = "low"
    os_error = "OS error reading file"

    def check(self, given: dict[str, Any]) -> None:
        if given.get("offset", 1) < 0:
            raise ToolFailure(f"read_file: 'offset' must be at least 1, got {given['offset']}", "invalid_input")
        if given.get("limit", 1) < 1:
            raise ToolFailure(f"read_file: 'limit' must be at least 1, got {given['limit']}", "invalid_input")

    def work(self, shown: Path, given: dict[str, Any], stop: Event) -> tuple[dict[str, Any], int | None]:
        file_path = given["file_path"]
        missing = ToolFailure(f"Path not found: {file_path}", "not_found")

        def read(entry: Entry) -> tuple[dict[str, Any], int | None]:
            found = entry.stat()
            if found is None:
                raise missing
            if stat.S_ISDIR(found.st_mode):
                return self._list(entry), None
            if not stat.S_ISREG(found.st_mode):
                raise ToolFailure(f"Not a regular file: {file_path}", "not_regular_file")
            return self._read(entry, max(given.get("offset", 1), 1), given.get("limit", DEFAULT_LIMIT), stop)

        try:
            return self.workspace.visit(shown, file_path, "read", read)
        except (FileNotFoundError, NotADirectoryError):
            raise missing from None

    def _list(self, entry: Entry) -> dict[str, Any]:
        names = sorted(entry.names(), key=lambda name: (not name[1], name[0]))
        limit = self.workspace.settings.max_listing_entries
        lines = [f"  {'DIR ' if is_dir else 'FILE'} {as_text(name)}" for name, is_dir in names[:limit]]
        output: dict[str, Any] = {"file_path": as_text(entry.shown)}
        if len(names) > limit:
            lines.append(f"  ... {len(names) - limit} more entries are not shown")
            output["truncated"] = True
        content = f"Directory: {as_text(entry.shown)}\n\n" + "\n".join(lines)
        return {**output, "content": content, "is_directory": True, "entry_count": len(names)}

    def _read(self, entry: Entry, offset: int, limit: int, stop: Event) -> tuple[dict[str, Any], int | None]:
        output: dict[str, Any] = {"file_path": as_text(entry.shown)}
        with entry.opened() as file:
            found = os.fstat(file.fileno())
            self.workspace.seen.remember(entry, found)
            if is_binary(file.read(BINARY_PROBE_BYTES)):
                suffix = entry.shown.suffix or "no suffix"
                content = f"Binary file ({as_text(suffix)}, {found.st_size} bytes), cannot display as text."
                return {**output, "content": content, "is_binary": True, "size_bytes": found.st_size}, None
            file.seek(0)
            window = read_window(file, offset, limit, budget=self.workspace.settings.max_read_bytes, stop=stop)
        return {**output, **window.to_output()}, window.bytes_read
