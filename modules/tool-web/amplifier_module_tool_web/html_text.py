"""HTML as text: in reading order, with its headings, lists, tables, links and code."""

import codecs
import logging
from collections.abc import Iterator
from html.parser import HTMLParser

from .html_elements import VOID, OpenElements, hides_contents
from .html_layout import Layout, absolute

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
