"""Markdown with YAML on top: the format of bundles, profiles and agents."""

import re
from typing import Any, NamedTuple

from .yaml import load_yaml

_OPENING = re.compile(r"---\s*\n")
_CLOSING = re.compile(r"\n---\s*")
_OPENING_LINE = re.compile(r"---[ \t]*\r?\n")
_CLOSING_LINE = re.compile(r"^---[ \t]*\r?$\n?", re.MULTILINE)


class SplitText(NamedTuple):
    """A text cut at its front matter; `front` is `None` when it has none."""

    front: str | None
    body: str
    first_line: int
    """The line of the file, counted from 1, on which `front` begins."""


def split_frontmatter(text: str) -> SplitText:
    """Cut a text into the YAML between its `---` lines and what follows, without parsing either.

    Byte order marks in front are dropped. The closing delimiter is the first following line that begins with `---`;
    what that line holds after it belongs to the body.
    """
    text = text.lstrip("\ufeff")
    opening = _OPENING.match(text)
    if opening is None:
        return SplitText(None, text, 1)
    begin = opening.end()
    # A blank line after the opening delimiter may end with the line break that the closing one begins with.
    closing = _CLOSING.search(text, max(text.index("\n") + 1, begin - 1))
    if closing is None:
        return SplitText(None, text, 1)
    front = text[begin : closing.start()] if closing.start() > begin else ""
    return SplitText(front, text[closing.end() :], text.count("\n", 0, begin) + 1)


def split_anchored_frontmatter(text: str) -> SplitText:
    """Cut a text as `split_frontmatter` does, but only at lines that hold nothing beside the dashes.

    So dashes inside a YAML value never end the front matter, and an empty one is one. Profiles are cut like this.
    """
    text = text.lstrip("\ufeff")
    opening = _OPENING_LINE.match(text)
    closing = _CLOSING_LINE.search(text, opening.end()) if opening else None
    if opening is None or closing is None:
        return SplitText(None, text, 1)
    return SplitText(text[opening.end() : closing.start()], text[closing.end() :].strip(), 2)


def parse_frontmatter(text: str) -> tuple[Any, str]:
    """Return the data of a text's front matter and the body after it; `({}, text)` when there is none.

    Front matter that is a list or a scalar is returned as such.

    Raises:
        yaml.YAMLError: the front matter is not YAML.
    """
    front, body, _ = split_frontmatter(text)
    if front is None:
        return {}, body
    data = load_yaml(front)
    return ({} if data is None else data), body
