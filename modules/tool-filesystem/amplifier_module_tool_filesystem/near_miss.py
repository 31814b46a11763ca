"""Why a text was not found: what a model most likely did wrong.

A hint is worth a moment, no more: what is looked at, and for how long, is bounded, and every step takes time in
proportion to what it looks at.
"""

import re
import time
from difflib import SequenceMatcher

_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)
_MAX_CHARS = 200_000
_MAX_WORDS = 2000
_MAX_LINE_CHARS = 200
_MAX_SECONDS = 0.1
_ALIKE = 0.6


def hint_for(wanted: str, text: str) -> str:
    """Return one sentence that helps to find `wanted` in `text`, empty when there is nothing alike."""
    unnumbered = _NUMBERED.sub("", wanted)
    if unnumbered != wanted and unnumbered in text:
        return "old_string has the line numbers that read_file shows; leave them out."
    looked_at = text[:_MAX_CHARS]
    if line := _line_with_other_space(wanted, looked_at):
        return f"Line {line} has the same words with different white space; copy them exactly."
    return _nearest_line(wanted, looked_at)


def _line_with_other_space(wanted: str, text: str) -> int | None:
    words = wanted[:_MAX_CHARS].split()
    if not words or len(words) > _MAX_WORDS:
        return None
    found = f" {' '.join(text.split())} ".find(f" {' '.join(words)} ")
    if found < 0:
        return None
    words_before = " ".join(text.split())[:found].count(" ") + (found > 0)
    for number, line in enumerate(text.split("\n"), start=1):
        words_before -= len(line.split())
        if words_before < 0:
            return number
    return None


def _nearest_line(wanted: str, text: str) -> str:
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")[:_MAX_LINE_CHARS]
    lines = [line.strip()[:_MAX_LINE_CHARS] for line in text.split("\n")]
    if first in lines:
        return f"Line {lines.index(first) + 1} matches the first line of old_string, but what follows it differs."
    deadline = time.monotonic() + _MAX_SECONDS
    best, number = _ALIKE, 0
    comparison = SequenceMatcher(b=first, autojunk=False)
    for index, line in enumerate(lines, start=1):
        if time.monotonic() > deadline:
            break
        if not line:
            continue
        comparison.set_seq1(line)
        if comparison.real_quick_ratio() > best and comparison.quick_ratio() > best and comparison.ratio() > best:
            best, number = comparison.ratio(), index
    return f"The nearest line is {number}: {lines[number - 1]}" if number else ""
