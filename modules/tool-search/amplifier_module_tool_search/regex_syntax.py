"""Python's regular expressions, read as trees: what they say to ripgrep, and which text they cannot do without.

Python's engine decides what matches. What it hands to ripgrep may match more than it does itself, never less; it says
which of the two it is.
"""

import importlib
import re
import warnings
from dataclasses import dataclass
from typing import Any

_parser: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")
_op: Any = importlib.import_module("re._constants")

_ASCII = [chr(code) for code in range(128)]
_BEYOND_ASCII = r"(?-u:[\x80-\xff]){1,4}"  # a character of several bytes, or bytes that are not a character at all
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_HAS_FOREIGN_CASES = frozenset("iksIKS")  # letters that match one beyond ASCII when case does not count
_MAX_REPEATS = 200


class InvalidPatternError(ValueError):
    """The pattern is not a regular expression."""


class _UntranslatableError(Exception):
    """There is no way to say it to ripgrep."""


@dataclass(frozen=True, slots=True)
class Translation:
    """A pattern for ripgrep; `is_exact` when it matches nothing else than the original."""

    pattern: str
    is_exact: bool


def compile_pattern(pattern: str, *, ignore_case: bool, multiline: bool) -> re.Pattern[str]:
    """Compile a pattern for single lines, or for whole files in which `.` matches line ends as well."""
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    flags |= re.DOTALL | re.MULTILINE if multiline else re.NOFLAG
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what may change in a later Python does not matter to the model
            return re.compile(pattern, flags)
    except (re.error, OverflowError, RecursionError, ValueError) as exc:
        raise InvalidPatternError(str(exc) or type(exc).__name__) from exc


def required_text(regex: re.Pattern[str]) -> str:
    """Return the longest text that is in every match, empty when there is none or case does not count."""
    tree = _tree(regex)
    if tree is None or tree.state.flags & re.IGNORECASE:
        return ""
    return max(_literal_runs(tree), key=len, default="")


def translate(regex: re.Pattern[str], *, multiline: bool) -> Translation | None:
    """Return the pattern for ripgrep, None when it cannot be said."""
    tree = _tree(regex)
    if tree is None:
        return None
    writer = _Writer(multiline)
    try:
        pattern = writer.sequence(tree, tree.state.flags, 1)
    except _UntranslatableError:
        return None
    return Translation(pattern, writer.is_exact and not multiline)


def _tree(regex: re.Pattern[str]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return _parser.parse(regex.pattern, regex.flags & ~re.DEBUG)
    except Exception:  # noqa: BLE001 - the parser is the interpreter's own affair: without it Python searches alone
        return None


def _literal_runs(nodes: Any) -> list[str]:
    """Return the texts that a sequence cannot do without."""
    runs, run = [], ""
    for op, argument in nodes:
        if op is _op.LITERAL:
            run += chr(argument)
            continue
        runs.append(run)
        run = ""
        if op is _op.SUBPATTERN and not argument[1] and not argument[2]:
            runs += _literal_runs(argument[3])
        elif op in (_op.MAX_REPEAT, _op.MIN_REPEAT) and argument[0] > 0:
            runs += _literal_runs(argument[2])
    return [*runs, run]


class _Writer:
    """Writes a tree down for ripgrep."""

    def __init__(self, multiline: bool) -> None:
        self.is_exact = True
        self._multiline = multiline

    def sequence(self, nodes: Any, flags: int, repeats: int) -> str:
        items = list(nodes)
        return "".join(
            self._boundary(items, index, flags)
            if (op, argument) == (_op.AT, _op.AT_BOUNDARY)
            else self._node(op, argument, flags, repeats)
            for index, (op, argument) in enumerate(items)
        )

    def _node(self, op: Any, argument: Any, flags: int, repeats: int) -> str:
        if op in (_op.LITERAL, _op.NOT_LITERAL, _op.ANY, _op.IN):
            return self._character(op, argument, flags)
        if op is _op.AT:
            return self._anchor(argument)
        if op is _op.BRANCH:
            return f"(?:{'|'.join(self.sequence(branch, flags, repeats) for branch in argument[1])})"
        if op is _op.SUBPATTERN:
            _, added, removed, nodes = argument
            return f"(?:{self.sequence(nodes, (flags | added) & ~removed, repeats)})"
        if op in (_op.MAX_REPEAT, _op.MIN_REPEAT):
            return self._repeat(argument, flags, repeats)
        return self._approximation(op, argument, flags, repeats)

    def _approximation(self, op: Any, argument: Any, flags: int, repeats: int) -> str:
        """Write down what matches wherever the original does."""
        self.is_exact = False
        if op in (_op.ASSERT, _op.ASSERT_NOT):
            return "(?:)"
        if op is _op.ATOMIC_GROUP:
            return f"(?:{self.sequence(argument, flags, repeats)})"
        if op is _op.POSSESSIVE_REPEAT:
            return self._repeat(argument, flags, repeats)
        if op is _op.GROUPREF_EXISTS:
            branches = [self.sequence(branch or (), flags, repeats) for branch in argument[1:]]
            return f"(?:{'|'.join(branches)})"
        raise _UntranslatableError

    def _repeat(self, argument: Any, flags: int, repeats: int) -> str:
        least, most, nodes = argument
        has_end = most is not _op.MAXREPEAT
        repeats *= max(most if has_end else least, 1)
        if repeats > _MAX_REPEATS:  # ripgrep writes them out, and there is a limit to what it takes
            raise _UntranslatableError
        return f"(?:{self.sequence(nodes, flags, repeats)}){{{least},{most if has_end else ''}}}"

    def _anchor(self, where: Any) -> str:
        if self._multiline or where is _op.AT_NON_BOUNDARY:
            self.is_exact = False
            return "(?:)"
        if where in (_op.AT_BEGINNING, _op.AT_BEGINNING_STRING):
            return "^"
        self.is_exact = False  # a line may end with \r\n
        return r"\r?$"

    def _boundary(self, items: list[Any], index: int, flags: int) -> str:
        """Write down a word boundary, which is plain only beside a letter or digit of ASCII."""
        self.is_exact = False
        beside = items[max(index - 1, 0) : index] + items[index + 1 : index + 2]
        for op, argument in beside:
            character = chr(argument) if op is _op.LITERAL else ""
            is_foreign = flags & re.IGNORECASE and character in _HAS_FOREIGN_CASES
            if character.isascii() and (character.isalnum() or character == "_") and not is_foreign:
                return r"(?-u:\b)"
        return "(?:)"

    def _character(self, op: Any, argument: Any, flags: int) -> str:
        if op is _op.LITERAL and argument > 127 and not flags & re.IGNORECASE and chr(argument) != _REPLACEMENT:
            if 0xD800 <= argument <= 0xDFFF:
                raise _UntranslatableError
            return rf"\x{{{argument:x}}}"
        matches = _compiled(op, argument, flags).fullmatch
        members = {character for character in _ASCII if matches(character)}
        choices = []
        if _may_be_beyond_ascii(op, argument, flags):
            choices.append(_BEYOND_ASCII)
        if "\n" in members:
            if self._multiline:
                choices.append(r"\r\n")
            else:
                members.remove("\n")
        if members:
            choices.append(_class_of(sorted(map(ord, members))))
        if not choices:
            raise _UntranslatableError
        self.is_exact = self.is_exact and len(choices) == 1 and choices[0] != _BEYOND_ASCII and "\r" not in members
        return choices[0] if len(choices) == 1 and choices[0] != _BEYOND_ASCII else f"(?:{'|'.join(choices)})"


def _class_of(codes: list[int]) -> str:
    """Return an expression for one of some characters of ASCII."""
    ranges: list[list[int]] = []
    for code in codes:
        if ranges and code == ranges[-1][1] + 1:
            ranges[-1][1] = code
        else:
            ranges.append([code, code])
    written = "".join(_escaped(low) if low == high else f"{_escaped(low)}-{_escaped(high)}" for low, high in ranges)
    return written if len(codes) == 1 else f"[{written}]"


def _escaped(code: int) -> str:
    return chr(code) if chr(code).isalnum() else rf"\x{code:02x}"


def _compiled(op: Any, argument: Any, flags: int) -> re.Pattern[str]:
    """Compile a single node."""
    state = _parser.State()
    state.flags, state.str = flags, ""
    compiled: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(op, argument)]), flags)
    return compiled


def _may_be_beyond_ascii(op: Any, argument: Any, flags: int) -> bool:
    """Say whether a node may match a character beyond ASCII; true when in doubt."""
    if op in (_op.ANY, _op.NOT_LITERAL):
        return True
    if flags & re.IGNORECASE:
        return op is _op.IN or argument > 127 or chr(argument) in _HAS_FOREIGN_CASES
    if op is _op.LITERAL:
        return bool(argument > 127)
    for kind, value in argument:
        if (kind is _op.LITERAL and value <= 127) or (kind is _op.RANGE and value[1] <= 127):
            continue
        return True
    return False
