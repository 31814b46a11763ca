"""What HTML may hold that reaches the page. Whatever made it, it passes here last."""

from __future__ import annotations

import re

import nh3

from .code_colours import COLOURS, PREFIX

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
    """Say whether an address may be followed: only whole ones, to a web server or a mailbox."""
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
