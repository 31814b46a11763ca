"""Markdown as HTML for the page: one renderer for messages, streams and `POST /render`."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from html import escape
from types import FrameType
from typing import Any

import nh3
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from amplifier_system.visible import visible

from .code_colours import COLOURS, PREFIX, highlighted
from .plain import MAX_CHARACTERS, plain

_SECONDS = 1.0
_NESTING = 32
_SMALLEST_HEADING, _LARGEST_HEADING = 6, 3
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}")
_ADDRESS = re.compile(r"https?://[^\s<>\"'`|\\^{}\[\]]+", re.IGNORECASE)
_NOT_AT_THE_END = ".,;:!?)"
_CHECKS = {"[ ] ": ("\u2610", "to do"), "[x] ": ("\u2611", "done"), "[X] ": ("\u2611", "done")}
_ALIGNED = {"text-align:center": "md-center", "text-align:right": "md-right"}
_BLOCKS = frozenset({"paragraph_open", "heading_open", "list_item_open", "blockquote_open", "table_open"})

Environment = MutableMapping[str, Any]


def render(text: str, *, seconds: float = _SECONDS) -> str:
    """Return a text as safe HTML. One that is too large, or too slow to take apart, is shown as it is."""
    if len(text) > MAX_CHARACTERS:
        return plain(text)
    shown = visible(text)
    try:
        with at_most(seconds):
            html = visible(_MARKDOWN.render(shown))  # again: entities and addresses are decoded on the way
    except (TooSlowError, RecursionError):
        return plain(text)
    return sanitised(html)


class _Renderer(RendererHTML):
    """What differs from plain HTML: code has classes, images come from nowhere else, tables can be scrolled."""

    def fence(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Environment) -> str:
        token = tokens[idx]
        language = token.info.split(maxsplit=1)[0] if token.info.strip() else ""
        named = f' data-language="{escape(language)}"' if _LANGUAGE.fullmatch(language) else ""
        code = highlighted(token.content, language)
        return f'<pre class="md-code"{named}><code>{code}</code></pre>\n'

    code_block = fence

    def image(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Environment) -> str:
        token = tokens[idx]
        source = str(token.attrs["src"])
        found = self.renderInlineAsText(token.children or (), options, env)
        if SAFE_IMAGE.fullmatch(source):
            return f'<img src="{escape(source)}" alt="{escape(found)}">'
        if env["in_link"] or not is_safe_link(source):
            return escape(found)
        return f'<a class="md-image" href="{escape(source)}">{escape(found or source)}</a>'

    def link_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Environment) -> str:
        env["in_link"] = True
        return self.renderToken(tokens, idx, options, env)

    def link_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Environment) -> str:
        env["in_link"] = False
        return self.renderToken(tokens, idx, options, env)

    def table_open(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Environment) -> str:
        return f'<div class="md-table">{self.renderToken(tokens, idx, options, env)}'

    def table_close(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Environment) -> str:
        return f"{self.renderToken(tokens, idx, options, env)}</div>\n"

    def check(self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: Environment) -> str:
        sign, found = _CHECKS[tokens[idx].markup]
        return f'<span class="md-check" role="img" aria-label="{found}">{sign}</span> '


def _suit_the_page(state: StateCore) -> None:
    """Give blocks the direction of their text, put headings below those of the page, and align by classes."""
    state.env["in_link"] = False
    for token in state.tokens:
        if token.type in _BLOCKS:
            token.attrSet("dir", "auto")
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(_SMALLEST_HEADING, int(token.tag[1:]) + _LARGEST_HEADING - 1)}"
        if token.type in ("th_open", "td_open"):
            aligned = _ALIGNED.get(str(token.attrs.pop("style", "")))
            if aligned:
                token.attrSet("class", aligned)
        if token.type == "th_open":
            token.attrSet("scope", "col")


def _check_tasks(state: StateCore) -> None:
    """Turn `[ ]` and `[x]` at the beginning of an item into a sign."""
    for item, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        if item.type != "list_item_open" or paragraph.type != "paragraph_open" or not inline.children:
            continue
        first = inline.children[0]
        if first.type == "text" and (mark := first.content[:4]) in _CHECKS:
            first.content = first.content[4:]
            inline.children.insert(0, Token("check", "", 0, markup=mark))
            item.attrSet("class", "md-task")


def _link_addresses(state: StateCore) -> None:
    """Make links of the web addresses in a text."""
    for block in state.tokens:
        if block.type == "inline" and block.children and "://" in block.content:
            block.children = _linked(block.children)


def _linked(children: Sequence[Token]) -> list[Token]:
    found: list[Token] = []
    inside = 0
    for token in children:
        inside += (token.type == "link_open") - (token.type == "link_close")
        found += [token] if inside or token.type != "text" else _parts(token)
    return found


def _parts(token: Token) -> list[Token]:
    parts: list[Token] = []
    end = 0
    for match in _ADDRESS.finditer(token.content):
        address = match[0].rstrip(_NOT_AT_THE_END)
        if is_safe_link(address):
            before = Token("text", "", 0, content=token.content[end : match.start()])
            link = Token("link_open", "a", 1, attrs={"href": address})
            parts += [before, link, Token("text", "", 0, content=address), Token("link_close", "a", -1)]
            end = match.start() + len(address)
    return [*parts, Token("text", "", 0, content=token.content[end:])] if parts else [token]


def _new_markdown() -> MarkdownIt:
    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True}, renderer_cls=_Renderer)
    markdown.options["maxNesting"] = _NESTING
    markdown.enable(["table", "strikethrough"])
    markdown.validateLink = lambda url: is_safe_link(url) or bool(SAFE_IMAGE.fullmatch(url))  # type: ignore[method-assign]
    for rule in (_check_tasks, _link_addresses, _suit_the_page):
        markdown.core.ruler.push(rule.__name__, rule)
    return markdown


_MARKDOWN = _new_markdown()

# What HTML may hold that reaches the page. Whatever made it, it passes here last.


SAFE_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/]{1,1400000}={0,2}")
"""An image that is part of the text and can do nothing: SVG is a document, and stays out."""

_LINK = re.compile(r"(?:https?://[^/?#\s]|mailto:[^\s])", re.IGNORECASE)

_TAG_NAMES = """
a blockquote br code del div em h3 h4 h5 h6 hr img li ol p pre s span strong table tbody td th thead tr ul
"""
_TAGS = set(_TAG_NAMES.split())
_ATTRIBUTES: dict[str, set[str]] = {
    "a": {"href", "title"},
    "img": {"src", "alt", "title"},
    "ol": {"start"},
    "pre": {"data-language"},
    "span": {"role", "aria-label"},
    "th": {"scope"},
    **{name: {"dir"} for name in ("blockquote", "h3", "h4", "h5", "h6", "li", "p", "table")},
}
_CLASSES: dict[str, set[str]] = {
    "a": {"md-image"},
    "div": {"md-table"},
    "li": {"md-task"},
    "pre": {"md-code", "md-plain"},
    "span": {"md-check", *(f"{PREFIX}{name}" for name in COLOURS)},
    "td": {"md-center", "md-right"},
    "th": {"md-center", "md-right"},
}


def is_safe_link(address: str) -> bool:
    """True if an address may be followed: only whole ones, to a web server or a mailbox."""
    return bool(_LINK.match(address))


def sanitised(html: str) -> str:
    """Return HTML without anything that is not allowed above; links open a page that does not know this one."""
    return nh3.clean(
        html,
        tags=_TAGS,
        attributes=_ATTRIBUTES,
        allowed_classes=_CLASSES,
        attribute_filter=_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer nofollow",
        set_tag_attribute_values={"a": {"target": "_blank"}},
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    match tag, name:
        case "a", "href":
            return value if is_safe_link(value) else None
        case "img", "src":
            return value if SAFE_IMAGE.fullmatch(value) else None
        case "ol", "start":
            return value if value.isascii() and value.isdigit() and len(value) < 10 else None
        case _, "dir":
            return value if value in ("auto", "ltr") else None
        case "span", "role":
            return value if value == "img" else None
        case "th", "scope":
            return value if value in ("col", "row") else None
        case _:
            return value


# How long a text may keep the processor busy.


class TooSlowError(Exception):
    """A text takes longer than it may."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Give up a block that has used this much processor time, so that a busy machine does not make a text slow.

    A signal ends it wherever it is, in the middle of matching a pattern as well. Signals are for the main thread of a
    process, which has the timer to itself.

    Raises:
        TooSlowError: in the block, or at its end.
    """
    signal.signal(signal.SIGPROF, _give_up)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _give_up(number: int, frame: FrameType | None) -> None:
    raise TooSlowError
