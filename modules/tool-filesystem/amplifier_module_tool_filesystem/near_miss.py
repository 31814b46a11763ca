"""Why a text was not found: what a model most likely did wrong."""

import difflib
import re

_NUMBERED = re.compile(r"^ *\d+\t", re.MULTILINE)
_MAX_LINES = 5000
_MAX_LINE_CHARS = 200
_MAX_WORDS = 2000


def hint_for(wanted: str, text: str) -> str:
    """Return one sentence that helps to find `wanted` in `text`, empty when there is nothing alike."""
    unnumbered = _NUMBERED.sub("", wanted)
    if unnumbered != wanted and unnumbered in text:
        return "old_string has the line numbers that read_file shows; leave them out."
    if line := _line_with_other_space(wanted, text):
        return f"Line {line} has the same words with other white space; copy them exactly."
    return _nearest_line(wanted, text)


def _line_with_other_space(wanted: str, text: str) -> int | None:
    words = wanted.split()
    if not words or len(words) > _MAX_WORDS:
        return None
    found = re.search(r"\s+".join(map(re.escape, words)), text)
    return text.count("\n", 0, found.start()) + 1 if found else None


def _nearest_line(wanted: str, text: str) -> str:
    first = next((line.strip() for line in wanted.splitlines() if line.strip()), "")[:_MAX_LINE_CHARS]
    lines = [line.strip()[:_MAX_LINE_CHARS] for line in text.split("\n", _MAX_LINES)[:_MAX_LINES]]
    if first in lines:
        return f"Line {lines.index(first) + 1} is as the first line of old_string; what follows it differs."
    near = difflib.get_close_matches(first, set(filter(None, lines)), n=1)
    return f"The nearest line is {lines.index(near[0]) + 1}: {near[0]}" if near else ""
