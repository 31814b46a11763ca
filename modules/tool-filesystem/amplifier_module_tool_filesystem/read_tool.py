"""The tool `read_file`: numbered lines of a text file, or the entries of a directory."""

import os
import stat
from codecs import BOM_UTF8, IncrementalDecoder, getincrementaldecoder
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, BinaryIO, ClassVar

from amplifier_core.events import ARTIFACT_READ
from amplifier_kit.tools.effects import READ
from amplifier_kit.tools.input import ToolFailure
from amplifier_kit.tools.paths import shown as as_text
from amplifier_kit.tools.workspace import BINARY_PROBE_BYTES, Entry, Stopped, is_binary

from .file_tool import FileTool

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
        limit = self.settings.max_listing_entries
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
            window = read_window(file, offset, limit, budget=self.settings.max_read_bytes, stop=stop)
        return {**output, **window.to_output()}, window.bytes_read


# A window of numbered lines out of a file of any size.


MAX_LINE_CHARS = 2000
CUT_MARK = "... [truncated]"

_CHUNK_BYTES = 1 << 20
_MAX_CHAR_BYTES = 4
_PIECE_BYTES = (MAX_LINE_CHARS + 2) * _MAX_CHAR_BYTES  # of a line: whatever is shown of it, and its line end
_PIECES_PER_CHECK = 500


@dataclass(frozen=True, slots=True)
class Window:
    """The lines from `offset` on; `total_lines` is None if the end was not reached."""

    offset: int
    lines: list[bytes]
    total_lines: int | None
    bytes_read: int
    is_utf8: bool

    def to_output(self) -> dict[str, Any]:
        texts = [self._text(line) for line in self.lines]
        output: dict[str, Any] = {
            "content": "\n".join(f"{number:6d}\t{text}" for number, text in enumerate(texts, self.offset)),
            "total_lines": self.total_lines,
            "lines_read": len(self.lines),
            "offset": self.offset,
        }
        if not self.is_utf8:
            output["encoding"] = "latin-1"
        if self.total_lines is None:
            output["truncated"] = True
        if self.total_lines == 0:
            output["warning"] = "The file is empty."
        elif not self.lines:
            output["warning"] = f"The file has {self.total_lines} lines; offset {self.offset} is past its end."
        after = self.offset + len(self.lines)
        if self.lines and (self.total_lines is None or after <= self.total_lines):
            output["next_offset"] = after
        return output

    def _text(self, line: bytes) -> str:
        text = line.decode("utf-8" if self.is_utf8 else "latin-1", "ignore")  # a cut may go through a character
        text = text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text
        return text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS] + CUT_MARK


def read_window(file: BinaryIO, offset: int, limit: int, *, budget: int, stop: Event) -> Window:
    """Read the lines of a text file from `offset`, counted from 1, on.

    No more than `budget` bytes of lines are kept, and beyond the window no more than `budget` bytes of the file are
    read to count its lines; a single line is followed no further than that either.
    """
    scan = _Scan(file, stop)
    lines = scan.take(offset, limit, budget)
    has_ended = scan.count_rest(budget)
    return Window(offset, lines, scan.line_count if has_ended else None, scan.bytes_read, scan.is_utf8(has_ended))


class _Scan:
    """One pass over a file: the lines of the window first, then a count of the rest."""

    def __init__(self, file: BinaryIO, stop: Event) -> None:
        self.line_count = 0
        self.bytes_read = len(BOM_UTF8) if file.read(len(BOM_UTF8)) == BOM_UTF8 else 0
        file.seek(self.bytes_read)
        self._file = file
        self._stop = stop
        self._is_in_line = False  # whether the last line has begun and not ended
        self._decoder: IncrementalDecoder | None = getincrementaldecoder("utf-8")()

    def take(self, offset: int, limit: int, budget: int) -> list[bytes]:
        """Read up to the end of the window and return the beginnings of its lines."""
        lines: list[bytes] = []
        last = offset + limit - 1
        longest = budget
        length = pieces = 0
        while (self._is_in_line or (self.line_count < last and budget > 0)) and length <= longest:
            piece = self._file.readline(_PIECE_BYTES)
            if not piece:
                break
            pieces += 1
            if pieces % _PIECES_PER_CHECK == 0 and self._stop.is_set():
                raise Stopped
            length += len(piece)
            if not self._is_in_line:
                length = len(piece)
                self.line_count += 1
                if self.line_count >= offset:
                    lines.append(piece)
                    budget -= len(piece)
            self._pass(piece)
        return lines

    def count_rest(self, budget: int) -> bool:
        """Count the lines that follow; False when the budget ends before the file does."""
        while self.bytes_read < budget and (chunk := self._file.read(_CHUNK_BYTES)):
            if self._stop.is_set():
                raise Stopped
            self.line_count += chunk.count(b"\n") + (not chunk.endswith(b"\n")) - self._is_in_line
            self._pass(chunk)
        return not self._file.read(1)

    def is_utf8(self, has_ended: bool) -> bool:
        """True if all that was read is UTF-8."""
        return self._decoder is not None and not (has_ended and self._decoder.getstate()[0])

    def _pass(self, data: bytes) -> None:
        self.bytes_read += len(data)
        self._is_in_line = not data.endswith(b"\n")
        if self._decoder is not None:
            try:
                self._decoder.decode(data)
            except UnicodeDecodeError:
                self._decoder = None
