"""The colours of code: few names, each with one colour for light and one for dark pages."""

from __future__ import annotations

from functools import lru_cache

from pygments.token import Token, _TokenType

PREFIX = "hl-"

COLOURS: dict[str, tuple[str, str]] = {
    "comment": ("#5c6370", "#9aa4b2"),
    "keyword": ("#8a2252", "#f0a3c4"),
    "string": ("#0b6b3a", "#9fd8a4"),
    "number": ("#8b4a00", "#f0be7f"),
    "name": ("#1a4fa3", "#9cc4ff"),
    "type": ("#6a3ea1", "#cdb4f6"),
    "operator": ("#4b5563", "#b8c0cc"),
    "inserted": ("#0b6b3a", "#9fd8a4"),
    "deleted": ("#a1260d", "#ffb3a6"),
    "heading": ("#1a4fa3", "#9cc4ff"),
    "error": ("#a1260d", "#ffb3a6"),
}
"""What a part of code is, and its colours: at least 4.5 times as bright or dark as what is behind it."""

_KINDS: tuple[tuple[_TokenType, str], ...] = (
    (Token.Comment, "comment"),
    (Token.Keyword.Type, "type"),
    (Token.Keyword.Constant, "number"),
    (Token.Keyword, "keyword"),
    (Token.Operator.Word, "keyword"),
    (Token.Operator, "operator"),
    (Token.Literal.String, "string"),
    (Token.Literal.Number, "number"),
    (Token.Literal.Date, "number"),
    (Token.Name.Builtin.Pseudo, "number"),
    (Token.Name.Builtin, "name"),
    (Token.Name.Function, "name"),
    (Token.Name.Decorator, "type"),
    (Token.Name.Class, "type"),
    (Token.Name.Exception, "type"),
    (Token.Name.Namespace, "type"),
    (Token.Name.Tag, "keyword"),
    (Token.Name.Attribute, "name"),
    (Token.Name.Constant, "number"),
    (Token.Generic.Inserted, "inserted"),
    (Token.Generic.Deleted, "deleted"),
    (Token.Generic.Heading, "heading"),
    (Token.Generic.Subheading, "heading"),
    (Token.Generic.Prompt, "comment"),
    (Token.Generic.Output, "comment"),
    (Token.Generic.Traceback, "error"),
    (Token.Generic.Error, "error"),
    (Token.Error, "error"),
)


@lru_cache(maxsize=1024)
def colour_of(kind: _TokenType) -> str:
    """Return the name of a token's colour, empty for what looks like the text around it."""
    return next((name for known, name in _KINDS if kind in known), "")  # type: ignore[comparison-overlap] # kinds nest


def stylesheet() -> str:
    """Return the rules for the page's stylesheet."""
    rules = (f".{PREFIX}{name} {{ color: light-dark({light}, {dark}); }}" for name, (light, dark) in COLOURS.items())
    return "\n".join(rules) + "\n"
