"""One kind of sensitive text, and the ways to find it.

Every search takes time in proportion to the text, whatever the text is: it starts from a literal that must occur, a
match or a failed attempt looks at a bounded stretch or consumes what it looked at, and nothing is tried twice.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

_RARE_CHARACTERS = 3

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
        """Say whether it is worth a search; `lowered` is the text in lower case."""
        searched = lowered if self.ignores_case else text
        for hint in self.hints:  # a plain loop, since every string of every event comes by
            if hint in searched:
                return True
        return not self.hints


class PatternSet:
    """Patterns that are looked for together. Hints of most are rare, and some are shared: they are looked for first."""

    def __init__(self, patterns: Iterable[SensitivePattern]) -> None:
        known = list(patterns)
        self._rare = [one for one in known if one.hints and min(map(len, one.hints)) >= _RARE_CHARACTERS]
        self._others = [one for one in known if one not in self._rare]
        self._hints = sorted({hint.lower() for one in self._rare for hint in one.hints})

    def that_may_occur(self, text: str) -> Iterator[SensitivePattern]:
        """Yield those that are worth a search."""
        lowered = text.lower()
        for one in self._others:
            if one.may_occur(text, lowered):
                yield one
        for hint in self._hints:  # plain loops, since every string of every event comes by
            if hint in lowered:
                yield from (one for one in self._rare if one.may_occur(text, lowered))
                return


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
