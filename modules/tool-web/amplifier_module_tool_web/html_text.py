"""HTML as text: in reading order, with its headings, lists, tables, links and code."""

import codecs
import logging
import re
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

logger = logging.getLogger(__name__)


class HtmlText:
    """Takes a document in pieces. `text()` is what there is so far: more of the document only adds to its end.

    A document that cannot be parsed is shown as it is. Not for the event loop: parsing takes its time.
    """

    def __init__(self, url: str, encoding: str) -> None:
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._parser: _Parser | None = _Parser(url)
        self._source: list[str] = []

    @property
    def title(self) -> str | None:
        return self._parser.title if self._parser else None

    @property
    def size(self) -> int:
        """A lower bound for the number of bytes of the text."""
        return self._parser.layout.size if self._parser else sum(map(len, self._source))

    def feed(self, data: bytes, *, is_end: bool = False) -> None:
        text = self._decoder.decode(data, is_end)
        if not self._source:
            text = text.removeprefix("\ufeff")
        self._source.append(text)
        if self._parser is None:
            return
        try:
            self._parser.feed(text)
            if is_end:
                self._parser.close()
        except (AssertionError, ValueError, RecursionError):  # what the parser raises for documents beyond repair
            logger.debug("a document could not be parsed; it is shown as it is", exc_info=True)
            self._parser = None

    def text(self) -> str:
        return self._parser.layout.text() if self._parser else "".join(self._source)


class _Parser(HTMLParser):
    def __init__(self, url: str) -> None:
        super().__init__(convert_charrefs=True)
        self.title: str | None = None
        self._elements = OpenElements()
        self.layout = Layout(self._elements, url)
        self._title: list[str] = []

    def updatepos(self, i: int, j: int) -> int:
        return j  # line numbers are not needed, and counting them takes time

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self._end(self._elements.ended_by_start(tag))
        if tag == "base" and given.get("href"):
            self.layout.base_url = absolute(self.layout.base_url, given["href"]) or self.layout.base_url
        if tag in VOID:
            if not self._elements.is_hidden:
                self.layout.void(tag, given)
            return
        if not (self._elements.is_hidden or hides_contents(tag, given)):
            self.layout.begin(tag, given)
        self._elements.open(tag, given)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._elements.is_title:
            self._end_title()
        self._end(self._elements.close(frozenset((tag,))))

    def handle_data(self, data: str) -> None:
        if self._elements.is_title:
            self._title.append(data)
        elif not self._elements.is_hidden:
            self.layout.add(data)

    def _end(self, ended: Iterator[str]) -> None:
        for name in ended:
            self.layout.end(name)

    def _end_title(self) -> None:
        title = " ".join("".join(self._title).split())
        if title and self.title is None:
            self.title = title
            self.layout.add_title(title)


# Which elements of an HTML document are open, even where their end tags were left out.


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
        """True if this is the title of the document, and not of a picture in it."""
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
    """True if nothing of an element is shown."""
    return name in _DROPPED or is_hidden(given)


def is_hidden(given: dict[str, str]) -> bool:
    """True if attributes hide an element."""
    return (
        "hidden" in given
        or given.get("aria-hidden", "").lower() == "true"
        or _HIDING_STYLE.search(given.get("style", "")) is not None
    )


# How the visible parts of an HTML document become lines of text.


_SPACE = re.compile(r"[ \t\n\r\f\xa0]+")
_SPACES = " \t\n\r\f\xa0"
_LINK_SCHEMES = frozenset(("http", "https", "mailto", "tel", "ftp"))


class Layout:
    """Collects lines; what is added later changes nothing of what is there.

    `size` is a lower bound for the number of characters.
    """

    def __init__(self, elements: OpenElements, base_url: str) -> None:
        self.base_url = base_url
        self.size = 0
        self._elements = elements
        self._lines: list[str] = []
        self._inline: list[str] = []
        self._prefix = ""  # of the next line
        self._wants_blank = False  # before the next line
        self._rows: list[list[str] | None] = [None]  # of each table around: the cells of the row that is being read
        self._links: list[tuple[str, int]] = []  # each address, and the size where the text of its link begins

    def text(self) -> str:
        """Return the lines so far."""
        rest = self._line()
        separator = [""] if rest and self._wants_blank and self._lines else []
        return "\n".join([*self._lines, *separator, *([rest] if rest else [])])

    def add(self, data: str) -> None:
        self._inline.append(data)
        self.size += len("".join(data.split()))

    def add_title(self, title: str) -> None:
        self._end_row()
        self._end_paragraph()
        self._emit(title)
        self._end_paragraph()

    def begin(self, tag: str, given: dict[str, str]) -> None:
        """Begin an element, which is not open yet."""
        if tag == "a":
            self._links.append((given.get("href", ""), self.size))
        elif tag in ("table", "pre"):
            self._end_row()
            self._end_paragraph()
        elif tag in PARAGRAPHS or tag in LINES:
            self._end_block(tag)
        if tag == "table":
            self._rows.append(None)
        elif tag == "tr":
            self._rows[-1] = []
        elif tag == "li":
            self._prefix = "  " * max(self._elements.lists() - 1, 0) + "- "
        elif tag in HEADINGS and self._rows[-1] is None:
            self._prefix = HEADINGS[tag]

    def end(self, tag: str) -> None:
        """End an element, which is not open any more."""
        if tag == "a" and self._links:
            self._end_link(*self._links.pop())
        elif tag == "pre":
            self._emit(_verbatim(self._inline))
            self._end_paragraph()
        elif tag in CELLS and self._rows[-1] is not None:
            self._rows[-1].append(_collapsed(self._inline))
            self._inline = []
        elif tag == "tr":
            self._end_row()
            self._rows[-1] = None
        elif tag == "table":
            self._end_row()
            self._end_paragraph()
            if len(self._rows) > 1:
                self._rows.pop()
        elif tag in PARAGRAPHS or tag in LINES or tag in CELLS:
            self._end_block(tag)
        if tag == "li" or tag in HEADINGS:
            self._prefix = ""

    def void(self, tag: str, given: dict[str, str]) -> None:
        """Show an element that has no contents."""
        if tag == "br" and self._elements.is_open("pre"):
            self._inline.append("\n")
        elif tag in ("br", "hr"):
            self._end_block(tag)
        elif tag == "img" and given.get("alt") and not is_hidden(given):
            self.add(f" {given['alt']} ")

    def _end_block(self, tag: str) -> None:
        """End the line, and the paragraph where there is one; inside a cell it is a space."""
        if self._elements.is_open("pre"):
            return
        if self._rows[-1] is not None:
            self._inline.append(" ")
            return
        self._emit(self._line())
        is_inner_list = tag in LISTS and self._elements.lists()
        if tag in PARAGRAPHS and not is_inner_list and not self._prefix:
            self._end_paragraph()

    def _end_paragraph(self) -> None:
        self._wants_blank = True

    def _end_row(self) -> None:
        """Show what there is of a row, or of a line."""
        self._emit(self._line())
        if self._rows[-1]:
            self._rows[-1] = []

    def _emit(self, line: str) -> None:
        self._inline = []
        if not line:
            return
        if self._wants_blank and self._lines:
            self._lines.append("")
        self._lines.append(line)
        self._wants_blank, self._prefix = False, ""

    def _line(self) -> str:
        """Return what is being read."""
        if self._elements.is_open("pre"):
            return _verbatim(self._inline)
        line = _collapsed(self._inline)
        row = self._rows[-1]
        if row is None:
            return self._prefix + line if line else ""
        cells = [*row, line] if line else row
        return " | ".join(cells) if any(cells) else ""

    def _end_link(self, href: str, size_before: int) -> None:
        if self.size == size_before or not href or href.startswith("#") or self._elements.is_open("pre"):
            return
        address = absolute(self.base_url, href)
        if urlsplit(address).scheme not in _LINK_SCHEMES or _collapsed(self._inline).endswith(address):
            return
        if self._inline:
            self._inline[-1] = self._inline[-1].rstrip(_SPACES)
        self._inline.append(f" ({address})")


def absolute(base_url: str, href: str) -> str:
    """Return where a link leads, nothing for one that makes no sense."""
    try:
        address = urljoin(base_url, href.strip())
        urlsplit(address)
    except ValueError:
        return ""
    return address


def _collapsed(inline: list[str]) -> str:
    return _SPACE.sub(" ", "".join(inline)).strip()


def _verbatim(inline: list[str]) -> str:
    return "".join(inline).replace("\r\n", "\n").removeprefix("\n").rstrip("\n")
