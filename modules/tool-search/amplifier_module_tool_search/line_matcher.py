"""Where a pattern matches in a text: line by line, or across lines."""

import re
from collections.abc import Iterator

from .regex_syntax import required_text
from .search_run import Watch

_LINES_PER_CHECK = 1000

Span = tuple[int, int]  # first and last line of a match, counted from 1


def split_lines(text: str) -> list[str]:
    r"""Return the lines of a text; they end with `\n` or `\r\n` and nothing else."""
    lines = text.split("\n")
    last = lines.pop()
    lines = [line.removesuffix("\r") for line in lines]
    return [*lines, last] if last else lines


class LineMatcher:
    """A pattern, ready to be looked for in many texts."""

    def __init__(self, regex: re.Pattern[str], *, multiline: bool) -> None:
        self._regex = regex
        self._multiline = multiline
        self._required = required_text(regex)

    def spans(self, text: str, watch: Watch) -> Iterator[Span]:
        """Yield the lines that match, or the matches across lines."""
        if self._multiline:
            return self._matches(text.replace("\r\n", "\n"), watch)
        if self._required:
            return self._lines_with(self._required, text, watch)
        return self._lines(text, watch)

    def _lines(self, text: str, watch: Watch) -> Iterator[Span]:
        search = self._regex.search
        for number, line in enumerate(split_lines(text), 1):
            if number % _LINES_PER_CHECK == 0:
                watch.check()
            if search(line):
                yield number, number

    def _lines_with(self, required: str, text: str, watch: Watch) -> Iterator[Span]:
        """Try only the lines that contain what every match contains."""
        search = self._regex.search
        number, counted = 1, 0
        found = text.find(required)
        while found >= 0:
            watch.check()
            start = text.rfind("\n", 0, found) + 1
            end = text.find("\n", found)
            line = text[start:] if end < 0 else text[start:end].removesuffix("\r")
            number += text.count("\n", counted, start)
            counted = start
            if search(line):
                yield number, number
            found = text.find(required, end + 1) if end >= 0 else -1

    def _matches(self, text: str, watch: Watch) -> Iterator[Span]:
        number, counted, last_reported = 1, 0, 0
        for match in self._regex.finditer(text):
            watch.check()
            start, end = match.span()
            if start == len(text) and (not text or text.endswith("\n")):
                continue  # there is no line any more
            number += text.count("\n", counted, start)
            counted = start
            if start == end and number <= last_reported:
                continue  # nothing but the gap behind a match, or between two characters
            last = number + text.count("\n", start, max(end - 1, start))
            last_reported = max(last, last_reported)
            yield number, last
