"""The colours of code: few names, each with one colour for light and one for dark pages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from html import escape
from itertools import groupby

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound

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


_NAMES = """
bash bat c c# c++ clojure cmake console cpp csharp css csv diff dart docker dockerfile elixir erlang fish go golang
graphql groovy haskell hcl html http ini java javascript jinja js json json5 jsonc jsx julia kotlin kt less lisp lua
make makefile markdown matlab md mysql nginx nix objective-c ocaml patch perl php plpgsql postgresql powershell
properties proto protobuf ps1 py pycon pytb python python3 r rb rs ruby rust scala scss sh shell sql sqlite swift
terraform tex toml ts tsx typescript vim vue xml yaml yml zig zsh
"""
LANGUAGES = frozenset(_NAMES.split())
"""What is highlighted. The names are those that people write after the fence; others are shown as plain text."""

_LARGEST = 64 * 1024
_LONGEST_LINE = 2000


def highlighted(code: str, language: str) -> str:
    """Return code as HTML, its parts with classes; without them where its language is not known or it is large."""
    lexer = _lexer(language.lower())
    if lexer is None or len(code) > _LARGEST or any(len(line) > _LONGEST_LINE for line in code.split("\n")):
        return escape(code)
    return "".join(_parts(lexer, code))


def _parts(lexer: Lexer, code: str) -> Iterator[str]:
    for colour, run in groupby(lexer.get_tokens(code), key=lambda part: colour_of(part[0])):
        text = escape("".join(text for _, text in run))
        yield f'<span class="{PREFIX}{colour}">{text}</span>' if colour else text


@lru_cache(maxsize=256)
def _lexer(language: str) -> Lexer | None:
    if language not in LANGUAGES:
        return None
    try:
        return get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None
