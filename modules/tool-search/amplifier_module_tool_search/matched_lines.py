"""The lines of a file that are shown: those that match, and those around them."""

import os
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from .answer_shape import Shape
from .matches import Span
from .regular_file import open_text
from .search_run import Watch

_LINES_PER_CHECK = 1000
_PIECE_CHARS = 1 << 20


class MatchedLines:
    """The matches in one file; those of the window are shown, and no other line of the file is kept."""

    def __init__(self, spans: Sequence[Span], shape: Shape, window: slice) -> None:
        self._shape = shape
        self._spans = [(first, shape.last_shown(first, last)) for first, last in spans]
        self._window = window
        self._lines: dict[int, str] = {}

    def read(self, descriptor: int, watch: Watch) -> None:
        """Read what is shown, piece by piece, from an open file that stays open."""
        width = self._shape.max_line_chars + len("\r\n") if self._shape.max_line_chars else -1
        number = 0
        with open_text(os.dup(descriptor)) as text:
            text.seek(0)
            for first, last in self._ranges():
                while number < last:
                    if number % _LINES_PER_CHECK == 0:
                        watch.check()
                    line = text.readline(width)
                    if not line:
                        return
                    number += 1
                    if number >= first:
                        self._lines[number] = self._shape.shown(line)
                    while line and not line.endswith("\n"):
                        watch.check()
                        line = text.readline(_PIECE_CHARS)

    def entries(self, file: str) -> Iterator[dict[str, Any]]:
        """Yield the matches of the window as they are reported."""
        has_context = bool(self._shape.before or self._shape.after)
        matched = {number for first, last in self._spans for number in range(first, last + 1)} if has_context else set()
        for first, last in self._shown:
            entry: dict[str, Any] = {"file": file}
            if self._shape.has_numbers:
                entry["line_number"] = first
            entry["content"] = "\n".join(self._lines[number] for number in self._read_of(first, last))
            if has_context:
                entry["context"] = [
                    {"line_number": number, "content": self._lines[number], "is_match": number in matched}
                    for number in self._read_of(*self._around(first, last))
                ]
            yield entry

    @property
    def _shown(self) -> Iterator[Span]:
        return islice(self._spans, self._window.start, self._window.stop)

    def _around(self, first: int, last: int) -> Span:
        return max(first - self._shape.shown_before, 1), last + self._shape.shown_after

    def _read_of(self, first: int, last: int) -> Iterator[int]:
        return (number for number in range(first, last + 1) if number in self._lines)

    def _ranges(self) -> Iterator[Span]:
        """Yield the lines that are shown, each once and in their order."""
        done = 0
        for first, last in self._shown:
            start, end = self._around(first, last)
            if end > done:
                yield max(start, done + 1), end
                done = end
