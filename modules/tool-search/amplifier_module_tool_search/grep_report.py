"""What `grep` answers: a window of the matches, cut to what a conversation can take."""

import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .matches import Counts, Matches, Span, batches
from .search_run import Watch
from .tree import open_text

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


_SMALLEST_ENTRY = len('{"file": "/", "content": ""}, ')


async def build_report(counts: Counts, matches: Matches, shape: Shape) -> dict[str, Any]:
    """Return the part of the output that depends on what was found, given in the order of the answer."""
    root = matches.candidates.root
    if shape.mode == "content":
        return await _content(counts, matches, shape)
    shown = counts[shape.window]
    if shape.mode == "count":
        found = {root.report(path): count for path, count in shown}
        totals = _totals(sum(count for _, count in counts), sum(count for _, count in shown))
        return {**totals, **_more(len(counts), len(shown), shape.offset), "counts": found}
    files = [root.report(path) for path, _ in shown]
    return {**_totals(len(counts), len(files)), **_more(len(counts), len(files), shape.offset), "files": files}


async def _content(counts: Counts, matches: Matches, shape: Shape) -> dict[str, Any]:
    total = sum(count for _, count in counts)
    results = Results(shape)
    skip, waiting = shape.offset, list(counts)
    while waiting and skip >= waiting[0][1]:  # files before the window are not even opened
        skip -= waiting.pop(0)[1]
    for batch in batches(waiting):
        if results.is_full:
            break
        with ExitStack() as closing:
            await _add_batch(results, batch, skip, matches, closing)
        skip = 0
    entries = results.entries
    report = {**_totals(total, len(entries)), **_more(total, len(entries), shape.offset), "results": entries}
    return {**report, "results_truncated_bytes": True} if results.is_cut else report


async def _add_batch(
    results: "Results", batch: Sequence[tuple[str, int]], skip: int, matches: Matches, closing: ExitStack
) -> None:
    candidates, counts = matches.candidates, dict(batch)
    files = await candidates.watch.work(lambda: candidates.open([*counts], closing))
    spans = await matches.spans(files, counts, results.spans_needed(skip)) if files else {}

    def add() -> None:
        for relative, found in spans.items():
            if results.is_full:
                return
            first = skip if relative == batch[0][0] else 0
            lines = MatchedLines(found, results.shape, slice(first, results.end(first)))
            lines.read(files[relative], candidates.watch)
            results.add(lines.entries(candidates.root.report(relative)))

    await candidates.watch.work(add)


def _totals(total: int, returned: int) -> dict[str, Any]:
    return {"total_matches": total, "matches_count": returned}


def _more(total: int, returned: int, offset: int) -> dict[str, Any]:
    """Say that there is more than was returned, and where it goes on."""
    more: dict[str, Any] = {"results_capped": True} if total > returned else {}
    return {**more, "next_offset": offset + returned} if returned and offset + returned < total else more


class Results:
    """The matches of the answer, as many as its number and its bytes allow; the first is made to fit."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.entries: list[dict[str, Any]] = []
        self.is_cut = False
        self._used = len("[]")

    @property
    def is_full(self) -> bool:
        return self.is_cut or (self.shape.limit > 0 and len(self.entries) >= self.shape.limit)

    def spans_needed(self, skip: int) -> int | None:
        """Return how many matches of one file can have a part in the rest of the answer; None when all of them can."""
        shape = self.shape
        left = [shape.limit - len(self.entries)] if shape.limit else []
        left += [shape.max_result_bytes // _SMALLEST_ENTRY + 1] if shape.max_result_bytes else []
        return skip + min(left) + shape.shown_after if left else None

    def end(self, first: int) -> int | None:
        """Return where the matches of a file end that can be shown from the first one on."""
        return first + self.shape.limit - len(self.entries) if self.shape.limit else None

    def add(self, entries: Iterator[dict[str, Any]]) -> None:
        budget = self.shape.max_result_bytes
        for entry in entries:
            if self.is_full:
                return
            size = len(json.dumps(entry)) + len(", ")
            if budget and self._used + size > budget:
                self.is_cut = True
                if not self.entries:
                    self.entries.append(_shortened(entry, budget))
                return
            self.entries.append(entry)
            self._used += size


def _shortened(entry: dict[str, Any], budget: int) -> dict[str, Any]:
    """Return a match without its context and with as much of its text as fits."""
    bare = {key: value for key, value in entry.items() if key != "context"}
    content = bare["content"]
    excess = len(json.dumps([bare])) - budget
    if excess <= 0:
        return bare
    keep = max(len(content) - excess - len(CUT_MARK), 0)
    while keep and len(json.dumps([{**bare, "content": content[:keep] + CUT_MARK}])) > budget:
        keep //= 2
    return {**bare, "content": content[:keep] + CUT_MARK}


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
