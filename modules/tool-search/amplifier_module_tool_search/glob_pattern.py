"""Patterns for names and paths: `*`, `?`, `[…]`, `{a,b}` and `**` for any number of directories."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from amplifier_kit.tools.input import ToolFailure

ANY_DEPTH = "**"

_MAX_ALTERNATIVES = 1000
_MAX_CHARS = 4096
_MAX_DEPTH = 20
_MEMBER = re.compile(r"(?P<first>.)-(?P<last>.)|.", re.DOTALL)  # of a class: a range, or one character

State = tuple[int, int]  # an alternative, and how many of its components are used up


def expand_braces(pattern: str, *, _depth: int = 0) -> list[str]:
    """Return the patterns that the alternatives in braces stand for; braces that do not pair are literal."""
    if len(pattern) > _MAX_CHARS or _depth > _MAX_DEPTH:
        raise ToolFailure(
            f"the pattern has more than {_MAX_CHARS} characters or {_MAX_DEPTH} braces in each other", "invalid_input"
        )
    closing = _brace_pairs(pattern)
    expanded = [""]
    position = 0
    while position < len(pattern):
        length = _token_length(pattern, position)
        pieces = [pattern[position : position + length]]
        if (end := closing.get(position)) is not None:
            length = end + 1 - position
            parts = _split_alternatives(pattern[position + 1 : end])
            pieces = [one for part in parts for one in expand_braces(part, _depth=_depth + 1)]
        if len(expanded) * len(pieces) > _MAX_ALTERNATIVES:
            raise ToolFailure(f"the pattern has more than {_MAX_ALTERNATIVES} alternatives", "invalid_input")
        expanded = [head + piece for head in expanded for piece in pieces]
        position += length
    return expanded


def split_components(pattern: str) -> list[str]:
    """Return the components of a pattern; empty ones and `.` say nothing, and one `**` is as good as two."""
    components: list[str] = []
    for component in pattern.split("/"):
        if component not in ("", ".") and not (component == ANY_DEPTH and components[-1:] == [ANY_DEPTH]):
            components.append(component)
    return components


def path_regex(components: Sequence[str]) -> str:
    """Return the regular expression for whole relative paths; a last `**` is everything inside.

    What follows a `**` is looked for in the directories from left to right, and the first place where it fits is kept:
    a later one could not help the rest. So no path takes long, whatever the pattern.
    """
    *runs, last = _runs(components)
    if not runs:
        return _run_regex(last)
    first, *middle = runs
    parts = [f"{_run_regex(first)}/"] if first else []
    parts += [f"(?>(?:[^/]+/)*?{_run_regex(run)}/)" for run in middle]
    return "".join(parts) + (f"(?:[^/]+/)*{_run_regex(last)}" if last else ".+")


def name_regex(component: str) -> str:
    """Return the regular expression for one name; what follows a `*` is kept where it fits first."""
    pieces: list[list[str]] = [[]]
    position = 0
    while position < len(component):
        length = _token_length(component, position)
        token = component[position : position + length]
        if token == "*":
            pieces.append([])
        else:
            pieces[-1].append(_token_regex(token))
        position += length
    first, *others = ["".join(piece) for piece in pieces]
    if not others:
        return first
    *middle, last = others
    return first + "".join(f"(?>[^/]*?{piece})" for piece in middle if piece) + f"[^/]*{last}"


def is_plain(component: str) -> bool:
    """True if a component is a name and nothing else."""
    return not any(character in component for character in "*?[]{}\\")


class GlobPattern:
    """A pattern for paths below a root, tried component by component on the way down."""

    def __init__(self, pattern: str) -> None:
        self._alternatives = [split_components(one) for one in expand_braces(pattern)]
        self.start = self._closure((index, 0) for index in range(len(self._alternatives)))

    def step(self, states: frozenset[State], name: str) -> tuple[frozenset[State], bool]:
        """Return the states after one more component, and whether the path up to it matches."""
        reached: list[State] = []
        has_matched = False
        for index, used in states:
            for component in self._alternatives[index][used : used + 1]:
                if component == ANY_DEPTH:
                    reached.append((index, used))
                elif _compiled(component).fullmatch(name):
                    reached.append((index, used + 1))
                else:
                    continue
                has_matched = has_matched or used + 1 == len(self._alternatives[index])
        return self._closure(reached), has_matched

    def _closure(self, states: Iterable[State]) -> frozenset[State]:
        """Add where a `**` that stands for no directory at all leads."""
        reached: set[State] = set()
        for index, used in states:
            reached.add((index, used))
            if self._alternatives[index][used : used + 1] == [ANY_DEPTH]:
                reached.add((index, used + 1))
        return frozenset(reached)


def fits_from_right(pattern: str, path: str) -> bool:
    """True if the last components of a relative path are like those of a pattern."""
    wanted, given = split_components(pattern), path.split("/")
    if pattern.startswith("/") or not 0 < len(wanted) <= len(given):
        return False
    return all(_compiled(one).fullmatch(name) for one, name in zip(reversed(wanted), reversed(given), strict=False))


def file_filter(pattern: str) -> re.Pattern[str]:
    """Return the expression for the relative paths of files: without `/` a name at any depth, else from the root."""
    expressions = []
    for alternative in expand_braces(pattern):
        if "/" not in alternative:
            alternative = f"{ANY_DEPTH}/{alternative}"
        elif alternative.endswith("/"):
            alternative += ANY_DEPTH
        expressions.append(path_regex(split_components(alternative)))
    return re.compile("|".join(f"(?:{expression})" for expression in expressions), re.DOTALL)


@lru_cache(maxsize=1024)
def _compiled(component: str) -> re.Pattern[str]:
    return re.compile(name_regex(component), re.DOTALL)


def _token_length(text: str, position: int) -> int:
    """Return the length of an escaped character, a class in brackets, or anything else, which is one character."""
    if text[position] == "\\" and position + 1 < len(text):
        return 2
    if text[position] == "[":
        first = position + (3 if text[position + 1 : position + 2] in ("!", "^") else 2)  # a leading ] is a member
        end = text.find("]", first)
        if end >= 0 and "/" not in text[position:end]:
            return end + 1 - position
    return 1


def _runs(components: Sequence[str]) -> list[list[str]]:
    """Return the components between the `**`."""
    runs: list[list[str]] = [[]]
    for component in components:
        if component == ANY_DEPTH:
            runs.append([])
        else:
            runs[-1].append(component)
    return runs


def _run_regex(components: Sequence[str]) -> str:
    return "/".join(map(name_regex, components))


def _token_regex(token: str) -> str:
    if token == "?":
        return "[^/]"
    if token[0] == "[" and len(token) > 1:
        return _class_regex(token[1:-1])
    return re.escape(token[1] if token[0] == "\\" and len(token) > 1 else token)


def _class_regex(members: str) -> str:
    is_negated = members[0] in "!^"
    found = _MEMBER.finditer(members, int(is_negated))
    ranges = [(match["first"] or match[0], match["last"] or match[0]) for match in found]
    if any(first > last for first, last in ranges):  # one that runs backwards matches nothing
        return "(?!)"
    listed = "".join(f"{re.escape(first)}-{re.escape(last)}" for first, last in ranges)
    return f"(?!/)[{'^' if is_negated else ''}{listed}]"


def _brace_pairs(text: str) -> dict[int, int]:
    """Return where each brace that opens is closed."""
    pairs: dict[int, int] = {}
    opened: list[int] = []
    position = 0
    while position < len(text):
        if text[position] == "{":
            opened.append(position)
        elif text[position] == "}" and opened:
            pairs[opened.pop()] = position
        position += _token_length(text, position)
    return pairs


def _split_alternatives(text: str) -> list[str]:
    parts, start, position, depth = [], 0, 0, 0
    while position < len(text):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if text[position] == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
        position += _token_length(text, position)
    return [*parts, text[start:]]
