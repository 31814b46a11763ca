"""Which elements of an HTML document are open, even where their end tags were left out."""

import re
from collections import Counter
from collections.abc import Iterator

VOID = frozenset(
    ("area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr")
)
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}
LISTS = frozenset(("ul", "ol", "menu", "dir"))
CELLS = frozenset(("td", "th"))
PARAGRAPHS = frozenset(
    ("p", "table", "blockquote", "section", "article", "aside", "header", "footer", "main", "nav", "figure", "form")
).union(HEADINGS, LISTS, ("dl", "fieldset", "details", "address", "hr", "pre"))
LINES = frozenset(("div", "li", "dt", "dd", "tr", "caption", "figcaption", "summary", "option", "legend", "body"))

_DROPPED = frozenset(("script", "style", "noscript", "template", "svg", "head", "title", "iframe", "object", "canvas"))
_IN_HEAD = frozenset(("base", "link", "meta", "noscript", "script", "style", "template", "title"))
_HIDING_STYLE = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)", re.IGNORECASE)
_MAX_DEPTH = 1000

# What a start tag ends if it is still open, and what keeps it from looking further out.
_ENDED_BY: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "li": (frozenset(("li",)), LISTS),
    "dt": (frozenset(("dt", "dd")), frozenset(("dl",))),
    "dd": (frozenset(("dt", "dd")), frozenset(("dl",))),
    "tr": (frozenset(("tr",)), frozenset(("table",))),
    "td": (CELLS, frozenset(("tr", "table"))),
    "th": (CELLS, frozenset(("tr", "table"))),
    "thead": (frozenset(("tr", "tbody", "caption")), frozenset(("table",))),
    "tbody": (frozenset(("tr", "thead", "tbody", "caption")), frozenset(("table",))),
    "tfoot": (frozenset(("tr", "thead", "tbody")), frozenset(("table",))),
    "option": (frozenset(("option",)), frozenset(("select",))),
    "a": (frozenset(("a",)), frozenset(("table",))),
}
_ENDED_BY_BLOCK = (frozenset(("p",)), frozenset(("td", "th", "li", "div", "section", "article", "body", "table")))


class OpenElements:
    """The elements around the place that is being read, the outermost first."""

    def __init__(self) -> None:
        self._open: list[tuple[str, bool]] = []  # each with whether it hides its contents
        self._counts: Counter[str] = Counter()
        self._hiding = 0

    @property
    def is_hidden(self) -> bool:
        return self._hiding > 0

    @property
    def is_title(self) -> bool:
        """Whether this is the title of the document, and not of a picture in it."""
        return bool(self._open) and self._open[-1][0] == "title" and self._hiding == 1 + self._counts["head"]

    def is_open(self, name: str) -> bool:
        return self._counts[name] > 0

    def lists(self) -> int:
        """Return how many lists are around."""
        return sum(self._counts[name] for name in LISTS)

    def open(self, name: str, given: dict[str, str]) -> None:
        """Take note of an element; raises `ValueError` when it is too deep to be meant."""
        if len(self._open) >= _MAX_DEPTH:
            raise ValueError(f"more than {_MAX_DEPTH} elements are open")
        hides = hides_contents(name, given)
        self._open.append((name, hides))
        self._counts[name] += 1
        self._hiding += hides

    def ended_by_start(self, tag: str) -> Iterator[str]:
        """Close what cannot contain the element that begins, and yield each visible one."""
        if self._open and self._open[-1][0] == "head" and tag not in _IN_HEAD:
            yield from self.close(frozenset(("head",)))
        if tag in PARAGRAPHS or tag in LINES:
            yield from self.close(*_ENDED_BY_BLOCK)
        if tag in _ENDED_BY:
            names, scope = _ENDED_BY[tag]
            while self._find(names, scope) is not None:
                yield from self.close(names, scope)

    def close(self, names: frozenset[str], scope: frozenset[str] = frozenset()) -> Iterator[str]:
        """Close the innermost of the named elements with everything in it, and yield each visible one."""
        index = self._find(names, scope)
        while index is not None and len(self._open) > index:
            name, hides = self._open.pop()
            self._counts[name] -= 1
            was_hidden = self.is_hidden
            self._hiding -= hides
            if not was_hidden:
                yield name

    def _find(self, names: frozenset[str], scope: frozenset[str]) -> int | None:
        if not any(map(self.is_open, names)):
            return None
        for index in range(len(self._open) - 1, -1, -1):
            if self._open[index][0] in names:
                return index
            if self._open[index][0] in scope:
                return None
        return None


def hides_contents(name: str, given: dict[str, str]) -> bool:
    """Say whether nothing of an element is shown."""
    return name in _DROPPED or is_hidden(given)


def is_hidden(given: dict[str, str]) -> bool:
    """Say whether attributes hide an element."""
    return (
        "hidden" in given
        or given.get("aria-hidden", "").lower() == "true"
        or _HIDING_STYLE.search(given.get("style", "")) is not None
    )
