"""Code with classes for its parts; their colours are in the stylesheet of the page."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from html import escape
from itertools import groupby

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from .code_colours import PREFIX, colour_of

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
