"""One kind of sensitive text, and the ways to find it.

Every search takes time in proportion to the text, whatever the text is: it starts from a literal that must occur, a
match or a failed attempt looks at a bounded stretch or consumes what it looked at, and nothing is tried twice.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

_RARE_CHARACTERS = 3
_UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff]"
    r"|\\{1,8}u(?i:00ad|034f|061c|180[b-f]|200[b-f]|202[a-e]|206[0-9a-f]|3164|fe0[0-9a-f]|feff|ffa0|db40\\{1,8}udc[0-9a-f]{2})"
)
"""Characters that nobody sees, also in the escapes of JSON."""

Span = tuple[int, int]
Find = Callable[[str], Iterable[Span]]


@dataclass(frozen=True, slots=True)
class SensitivePattern:
    """One kind of sensitive text: `find` yields the spans to mask.

    `hints` are literals, one of which is in every text that has something to find; without any, `find` decides.
    `ignores_case` says that they are in lower case and stand for any.
    """

    name: str
    hints: tuple[str, ...]
    find: Find
    ignores_case: bool = False

    def may_occur(self, text: str, lowered: str) -> bool:
        """True if it is worth a search; `lowered` is the text in lower case."""
        searched = lowered if self.ignores_case else text
        for hint in self.hints:  # a plain loop, since every string of every event comes by
            if hint in searched:
                return True
        return not self.hints


class PatternSet:
    """Patterns that are looked for together. Hints of most are rare, and some are shared: they are looked for first."""

    def __init__(self, patterns: Iterable[SensitivePattern]) -> None:
        known = list(patterns)
        rare = [one for one in known if one.hints and min(map(len, one.hints)) >= _RARE_CHARACTERS]
        self._others = [one for one in known if one not in rare]
        hints = {hint.lower() for one in rare for hint in one.hints}
        self._hints: dict[str, list[tuple[str, tuple[SensitivePattern, ...]]]] = {}
        """The shortest hints with the patterns that they are hints of, or a part of one; by a character of each that a
        text with it has, mostly a rare one."""
        for hint in sorted(hint for hint in hints if not any(other in hint for other in hints - {hint})):
            mark = next((character for character in hint if not character.isalnum()), "")
            hinted = tuple(one for one in rare if any(hint in each.lower() for each in one.hints))
            self._hints.setdefault(mark, []).append((hint, hinted))

    def that_may_occur(self, text: str) -> Iterator[SensitivePattern]:
        """Yield those that are worth a search, some perhaps twice."""
        lowered = text.lower()
        for one in self._others:
            if one.may_occur(text, lowered):
                yield one
        for mark, hints in self._hints.items():  # plain loops, since every string of every event comes by
            if mark in lowered:
                for hint, hinted in hints:
                    if hint in lowered:
                        yield from (one for one in hinted if one.may_occur(text, lowered))


def find_unseen(text: str, find: Find) -> list[Span]:
    """Return what `find` finds once the characters that nobody sees are left out, as spans of the text as it is."""
    if text.isascii() and "\\u" not in text:
        return []
    places, done = list[int](), 0
    for unseen in _UNSEEN.finditer(text):
        places += range(done, unseen.start())
        done = unseen.end()
    if not done:
        return []
    places += range(done, len(text))
    seen = "".join([text[place] for place in places])
    return [(places[start], places[end - 1] + 1) for start, end in find(seen) if start < end]


def matches_of(regex: str, accepts: Callable[[str], bool] | None = None) -> Find:
    """Return a search for what `regex` matches: its named group that took part, else all of it.

    It is compiled by the first search, since most texts hold none of its hints.

    With `accepts`, only what that function says yes to. An empty match does not count.
    """

    compiled = cache(lambda: re.compile(regex))

    def find(text: str) -> Iterator[Span]:
        for match in compiled().finditer(text):
            start, end = match.span(match.lastgroup or 0)
            if start < end and (accepts is None or accepts(text[start:end])):
                yield start, end

    return find
