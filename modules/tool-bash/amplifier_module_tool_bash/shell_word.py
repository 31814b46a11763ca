"""A word of a shell script: what it is once quotes are removed, and how much of that only the shell can know."""

import itertools
import re
from dataclasses import dataclass, field, replace

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*(\[.*\])?\+?=", re.ASCII | re.DOTALL)
_HIDDEN = "\x01"
_MAX_ALTERNATIVES = 256
_MAX_BRACES = 64


@dataclass(frozen=True, slots=True)
class Word:
    """One word. In `value` quotes are removed, and what the shell would replace stands as it is written.

    Literal is a word whose value is known from the text alone; plain one that is written without any quoting, as a
    keyword must be.
    """

    value: str
    is_literal: bool = True
    is_plain: bool = True
    is_assignment: bool = False
    has_tilde: bool = False
    has_process: bool = False


def may_evaluate(word: Word) -> bool:
    """True if a word has a subscript with a substitution in it, which some builtins run though it is quoted."""
    return "[" in word.value and ("$(" in word.value or "`" in word.value)


@dataclass(slots=True)
class Draft:
    """A word that is being read, in pieces that are quoted or not."""

    pieces: list[tuple[str, bool]] = field(default_factory=list)
    is_literal: bool = True
    is_plain: bool = True
    has_process: bool = False
    has_open_bracket: bool = False

    def add(self, text: str) -> None:
        self.pieces.append((text, False))

    def add_quoted(self, text: str) -> None:
        self.pieces.append((text, True))
        self.is_plain = False

    def add_expansion(self, text: str) -> None:
        self.add_quoted(text)
        self.is_literal = False

    def add_glob(self, sign: str) -> None:
        self.add(sign)
        self.has_open_bracket = self.has_open_bracket or sign == "["
        if sign in "*?" or (sign == "]" and self.has_open_bracket):
            self.is_literal = False

    def end_with_pattern(self) -> None:
        """Put a star in the place of the sign that begins an extended pattern."""
        last, _ = self.pieces.pop()
        self.add(last[:-1])
        self.add_glob("*")

    @property
    def begins_array(self) -> bool:
        """True if a parenthesis would begin an array here: behind `name=`."""
        return _ASSIGNMENT.fullmatch(self.shape) is not None

    @property
    def shape(self) -> str:
        """The text with everything quoted made unrecognizable."""
        return "".join(_HIDDEN * len(text) if is_quoted else text for text, is_quoted in self.pieces)

    def words(self) -> list[Word]:
        shape = self.shape
        word = Word(
            "".join(text for text, _ in self.pieces),
            self.is_literal,
            self.is_plain,
            _ASSIGNMENT.match(shape) is not None,
            shape.startswith("~"),
            self.has_process,
        )
        if word.is_assignment or "{" not in shape:
            return [word]
        if ".." in shape or "$" in shape:  # a sequence, or a sign that may meet a name behind the brace
            word = replace(word, is_literal=False)
        values = _alternatives(self.pieces) if shape.count("{") <= _MAX_BRACES else []
        return [replace(word, value=value) for value in values] if values else [replace(word, is_literal=False)]


def _alternatives(pieces: list[tuple[str, bool]]) -> list[str]:
    """Return the values of a word with the alternatives `{a,b}` written out; nothing when they are too many."""
    if not any(text == "{" and not is_quoted for text, is_quoted in pieces):
        return ["".join(text for text, _ in pieces)]
    start = next(place for place, piece in enumerate(pieces) if piece == ("{", False))
    depth, commas = 0, [start]
    for place, (text, is_quoted) in enumerate(pieces[start:], start):
        if is_quoted or text not in ("{", "}", ","):
            continue
        depth += (text == "{") - (text == "}")
        if text == "," and depth == 1:
            commas.append(place)
        elif depth == 0:
            break
    before, inner_commas = "".join(text for text, _ in pieces[:start]), commas[1:]
    if depth or not inner_commas:  # no alternatives: the brace stands for itself
        return [before + "{" + rest for rest in _alternatives(pieces[start + 1 :])]
    bounds = itertools.pairwise([*commas, place])
    middles = [value for left, right in bounds for value in _alternatives(pieces[left + 1 : right])]
    ends = _alternatives(pieces[place + 1 :])
    if not middles or not ends or len(middles) * len(ends) > _MAX_ALTERNATIVES:
        return []
    return [before + middle + end for middle in middles for end in ends]


# The commands a shell script is made of.


@dataclass(slots=True)
class Redirect:
    """A redirection; a here-document has a `body`, and its target says whether that is taken as it stands."""

    operator: str
    descriptor: str = ""
    target: Word = field(default_factory=lambda: Word(""))
    body: str | None = None

    @property
    def feeds_stdin(self) -> bool:
        return self.operator.startswith("<") and self.descriptor in ("", "0")

    @property
    def writes(self) -> bool:
        return ">" in self.operator


@dataclass(slots=True)
class SimpleCommand:
    """A program with its arguments; `is_piped` when its input comes from a pipe, its own or one around it."""

    words: list[Word] = field(default_factory=list)
    assignments: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    is_piped: bool = False

    @property
    def stdin(self) -> Redirect | None:
        """The redirection that its input comes from."""
        return next((one for one in reversed(self.redirects) if one.feeds_stdin), None)

    @property
    def settings(self) -> list[Word]:
        """The variables that are set for the program, by the shell or by a wrapper such as `env`."""
        return [*self.assignments, *(word for word in self.words if word.is_assignment)]

    @property
    def is_empty(self) -> bool:
        return not (self.words or self.assignments or self.redirects)


@dataclass(slots=True)
class Script:
    """What a script runs, and the operators it is held together by."""

    commands: list[SimpleCommand] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)
