"""How much of the matches an answer shows, and how."""

import sys
from dataclasses import dataclass

CUT_MARK = "... [truncated]"

_SMALLEST_LINE = len(r"\n")
_SMALLEST_CONTEXT_LINE = len('{"line_number": 1, "content": "", "is_match": true}, ')


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
        return min(self.before, self._most(_SMALLEST_CONTEXT_LINE))

    @property
    def shown_after(self) -> int:
        return min(self.after, self._most(_SMALLEST_CONTEXT_LINE))

    def last_shown(self, first: int, last: int) -> int:
        """Return the last line of a match that can have room in an answer."""
        return min(last, first + self._most(_SMALLEST_LINE))

    def _most(self, smallest: int) -> int:
        """Return how many lines, of which none takes fewer bytes than the smallest, can have room in an answer."""
        return self.max_result_bytes // smallest + 1 if self.max_result_bytes else sys.maxsize

    def shown(self, line: str) -> str:
        """Return a line as it is shown, without its end; of a long one a beginning is enough."""
        line = line.removesuffix("\n").removesuffix("\r")
        is_cut = self.max_line_chars and len(line) > self.max_line_chars
        return line[: self.max_line_chars] + CUT_MARK if is_cut else line.rstrip()
