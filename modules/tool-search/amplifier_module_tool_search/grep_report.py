"""What `grep` answers: a window of the matches, cut to what a conversation can take."""

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from .answer_shape import CUT_MARK, Shape
from .matched_lines import MatchedLines
from .matches import Counts, Matches, batches

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
