"""How the visible parts of an HTML document become lines of text."""

import re
from urllib.parse import urljoin, urlsplit

from .html_elements import CELLS, HEADINGS, LINES, LISTS, PARAGRAPHS, OpenElements, is_hidden

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
