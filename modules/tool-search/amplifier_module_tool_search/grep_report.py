"""What `grep` answers: a window of the matches, cut to what a conversation can take."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from .candidates import Candidates, Counts
from .line_matcher import Span, split_lines

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


def build_report(counts: Counts, candidates: Candidates, shape: Shape) -> dict[str, Any]:
    """Return the part of the output that depends on what was found, given in the order of the answer."""
    if shape.mode == "content":
        return _content(counts, candidates, shape)
    shown = counts[shape.window]
    if shape.mode == "count":
        found = {candidates.root.report(path): count for path, count in shown}
        totals = _totals(sum(count for _, count in counts), sum(count for _, count in shown))
        return {**totals, **_more(len(counts), len(shown), shape.offset), "counts": found}
    files = [candidates.root.report(path) for path, _ in shown]
    return {**_totals(len(counts), len(files)), **_more(len(counts), len(files), shape.offset), "files": files}


def _content(counts: Counts, candidates: Candidates, shape: Shape) -> dict[str, Any]:
    total = sum(count for _, count in counts)
    entries = islice(_entries(counts, candidates, shape), shape.limit or None)
    results, is_cut = _within_budget(entries, shape.max_result_bytes)
    report = {**_totals(total, len(results)), **_more(total, len(results), shape.offset), "results": results}
    return {**report, "results_truncated_bytes": True} if is_cut else report


def _totals(total: int, returned: int) -> dict[str, Any]:
    return {"total_matches": total, "matches_count": returned}


def _more(total: int, returned: int, offset: int) -> dict[str, Any]:
    """Say that there is more than was returned, and where it goes on."""
    more: dict[str, Any] = {"results_capped": True} if total > returned else {}
    return {**more, "next_offset": offset + returned} if offset + returned < total else more


def _entries(counts: Counts, candidates: Candidates, shape: Shape) -> Iterator[dict[str, Any]]:
    """Yield the matches from the offset on; files before it are not even opened."""
    skip = shape.offset
    for path, count in counts:
        if skip >= count:
            skip -= count
            continue
        text = candidates.text_of(path)
        if text is not None:
            spans = list(candidates.matcher.spans(text, candidates.watch))
            yield from _file_entries(candidates.root.report(path), text, spans, skip, shape)
        skip = 0


def _file_entries(file: str, text: str, spans: list[Span], skip: int, shape: Shape) -> Iterator[dict[str, Any]]:
    lines = split_lines(text)
    matched = {number for first, last in spans for number in range(first, last + 1)}

    def shown(number: int) -> str:
        line = lines[number - 1]
        is_cut = shape.max_line_chars and len(line) > shape.max_line_chars
        return line[: shape.max_line_chars] + CUT_MARK if is_cut else line.rstrip()

    for first, last in spans[skip:]:
        entry: dict[str, Any] = {"file": file}
        if shape.has_numbers:
            entry["line_number"] = first
        entry["content"] = "\n".join(shown(number) for number in range(first, last + 1))
        if shape.before or shape.after:
            around = range(max(first - shape.before, 1), min(last + shape.after, len(lines)) + 1)
            entry["context"] = [
                {"line_number": number, "content": shown(number), "is_match": number in matched} for number in around
            ]
        yield entry


def _within_budget(entries: Iterator[dict[str, Any]], budget: int) -> tuple[list[dict[str, Any]], bool]:
    """Return the entries that fit into a number of bytes, and whether one did not; the first is made to fit."""
    results: list[dict[str, Any]] = []
    used = len("[]")
    for entry in entries:
        size = len(json.dumps(entry)) + len(", ")
        if budget and used + size > budget:
            if not results:
                results.append(_shortened(entry, budget))
            return results, True
        results.append(entry)
        used += size
    return results, False


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
