"""How much of the matches an answer shows, and how."""

import sys
from dataclasses import dataclass

CUT_MARK = "... [truncated]"


@dataclass(frozen=True, slots=True)
class Shape:
    """How much of the matches is shown, and how; 0 stands for no limit."""

    mode: str
    offset: int
    limit: int
    has_numbers: bool
    before: int
    after: int
    max_line_chars: int
    max_result_bytes: int

    @property
    def window(self) -> slice:
        return slice(self.offset, self.offset + self.limit if self.limit else None)

    @property
    def shown_before(self) -> int:
        """The lines of context that can have room in an answer."""
        return min(self.before, self._most_lines)

    @property
    def shown_after(self) -> int:
        return min(self.after, self._most_lines)

    def last_shown(self, first: int, last: int) -> int:
        """Return the last line of a match that can have room in an answer."""
        return min(last, first + self._most_lines)

    @property
    def _most_lines(self) -> int:
        return self.max_result_bytes or sys.maxsize

    def shown(self, line: str) -> str:
        """Return a line as it is shown, without its end; of a long one a beginning is enough."""
        line = line.removesuffix("\n").removesuffix("\r")
        is_cut = self.max_line_chars and len(line) > self.max_line_chars
        return line[: self.max_line_chars] + CUT_MARK if is_cut else line.rstrip()
