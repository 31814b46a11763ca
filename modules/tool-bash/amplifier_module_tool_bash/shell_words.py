"""Reading the words of a shell script, with the scripts inside them."""

import re
import time
from dataclasses import dataclass

from .shell_word import Draft, Word

MAX_DEPTH = 60

_METACHARACTERS = frozenset(" \t\n;&|()<>")
_SPECIAL = frozenset("\\'\"$`*?[]{},")
_PLAIN_RUN = re.compile(r"[^ \t\n;&|()<>\\'\"$`*?\[\]{},]+")
_DOUBLE_QUOTED_RUN = re.compile(r'[^"\\$`]+')
_PARAMETER = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!-]", re.ASCII)
_ELEMENT = re.compile(r"[A-Za-z_]\w*\[", re.ASCII)
_BAD_PARAMETER = re.compile(r"""[#!]?(?:\w*|[@*#?$!-])['"\\`]""")
_FUNCTION_SUBSTITUTION = frozenset(" \t\n|(")
_ANSI_ESCAPE = re.compile(
    r"\\(?:([0-7]{1,3})|x\{([0-9a-fA-F]*)\}|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))",
    re.DOTALL,
)
_ANSI_LETTERS = {"a": "\a", "b": "\b", "e": "\x1b", "E": "\x1b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_MAX_SUBSCRIPT = 256
_BUDGET_S = 0.1
_LONGEST_STEP_S = 0.02
_MAX_ARITHMETIC = 4096


class TooDeepError(ValueError):
    """A script is nested too deeply, or is otherwise too much, to be read."""


class Budget:
    """The processor time that reading may take; more than that counts as too much to be read.

    Of a single pause between two checks only a part counts: the garbage collector's is not the script's.
    """

    def __init__(self, seconds: float = _BUDGET_S) -> None:
        self._remaining_s = seconds
        self._checked_s = time.thread_time()

    def check(self) -> None:
        """Raise `TooDeepError` when it is used up."""
        now_s = time.thread_time()
        self._remaining_s -= min(now_s - self._checked_s, _LONGEST_STEP_S)
        self._checked_s = now_s
        if self._remaining_s < 0:
            raise TooDeepError


@dataclass(frozen=True, slots=True)
class Dialect:
    """What shells read differently: bash has more syntax than a plain shell.

    Whether single quotes inside a double-quoted `${…}` quote depends on the operator there, and whether `${ …; }` runs
    commands on the version of bash; both readings exist.
    """

    is_bash: bool = True
    quotes_in_parameters: bool = False
    runs_in_parameters: bool = True


class WordReader:
    """Reads the words of a text, one after the other; the scripts inside them are passed on."""

    def __init__(self, text: str, dialect: Dialect, budget: Budget, depth: int = 0) -> None:
        self.text = text
        self.dialect = dialect
        self.budget = budget
        self.place = 0
        self.depth = depth
        self.allows_arrays = True

    def read_substitution(self, until: str, *, is_piped: bool = False) -> None:
        """Read the script that begins here, up to and with `until`."""
        raise NotImplementedError

    def note_doubt(self, text: str) -> None:
        """Take note that shells disagree about what follows, so that what runs cannot be known."""
        raise NotImplementedError

    def reader_of(self, text: str) -> "WordReader":
        """Return a reader for a text inside this one; what it finds counts as found here."""
        raise NotImplementedError

    def read_word(self, *, may_assign: bool = False) -> list[Word]:
        """Read one word; more than one when it has alternatives in braces."""
        self.budget.check()
        draft = Draft()
        if may_assign and self.dialect.is_bash:
            self._read_element(draft)
        while (sign := self.peek()) and self._read_piece(draft, sign):
            pass
        return draft.words()

    def peek(self, ahead: int = 0) -> str:
        """Return the sign here or further on, nothing at the end."""
        return self.text[self.place + ahead : self.place + ahead + 1]

    def read_expansions(self) -> None:
        """Read the whole text as one that is expanded but not split: the inside a here-document."""
        while sign := self.peek():
            if sign == "\\":
                self.place += 2
            elif not self._read_expansion(Draft(), sign, is_double_quoted=True):
                self.place += 1

    def skip_arithmetic(self) -> bool:
        """Read `((…))` if that is what stands here; two opening parentheses can also be two subshells."""
        end = self._arithmetic_end()
        if end is None:
            return False
        self.reader_of(self.text[self.place : end]).read_expansions()
        self.place = end
        return True

    # --- pieces

    def _read_piece(self, draft: Draft, sign: str) -> bool:
        """Read what begins here; False where the word ends."""
        if sign in "<>" and self.peek(1) == "(":
            self._read_process(draft)
        elif sign == "(" and self.dialect.is_bash and self.allows_arrays and draft.begins_array:
            self._read_array()
        elif sign in _METACHARACTERS:
            if sign == "(" and draft.shape[-1:] in {*"?*+@!"} and draft.shape != "!":
                draft.end_with_pattern()  # what it holds is read as commands too
            return False
        elif sign in "*?[]":
            draft.add_glob(sign)
            self.place += 1
        elif sign in "{},":
            draft.add(sign)
            self.place += 1
        elif sign in _SPECIAL:
            self._read_special(draft, sign)
        else:
            run = _PLAIN_RUN.match(self.text, self.place)
            draft.add(run.group() if run else sign)
            self.place = run.end() if run else self.place + 1
        return True

    def _read_special(self, draft: Draft, sign: str) -> None:
        if sign == "\\":
            escaped = self.peek(1)
            if escaped != "\n":
                draft.add_quoted(escaped)
            self.place += 2
        elif sign == "'":
            draft.add_quoted(self._single_quoted())
        elif sign == '"':
            self._read_double_quoted(draft)
        elif not self._read_expansion(draft, sign):
            draft.add(sign)
            self.place += 1

    def _single_quoted(self) -> str:
        start, end = self.place + 1, self.text.find("'", self.place + 1)
        end = len(self.text) if end < 0 else end
        self.place = end + 1
        return self.text[start:end]

    def _read_double_quoted(self, draft: Draft) -> None:
        draft.add_quoted("")
        self.place += 1
        while sign := self.peek():
            if sign == '"':
                self.place += 1
                return
            if run := _DOUBLE_QUOTED_RUN.match(self.text, self.place):
                draft.add_quoted(run.group())
                self.place = run.end()
            elif sign == "\\":
                escaped = self.peek(1)
                if escaped != "\n":
                    draft.add_quoted(escaped if escaped in {*'$`"\\'} else sign + escaped)
                self.place += 2
            elif not self._read_expansion(draft, sign, is_double_quoted=True):
                draft.add_quoted(sign)
                self.place += 1

    def _read_ansi_quoted(self, draft: Draft) -> None:
        start = end = self.place + 2
        while end < len(self.text) and self.text[end] != "'":
            end += 2 if self.text[end] == "\\" else 1
        self.place = end + 1
        draft.add_quoted(_ANSI_ESCAPE.sub(_unescaped, self.text[start:end]).partition("\0")[0])

    # --- what the shell replaces

    def _read_expansion(self, draft: Draft, sign: str, *, is_double_quoted: bool = False) -> bool:
        """Read an expansion if one begins here."""
        if sign not in "$`":
            return False
        start = self.place
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooDeepError
        if sign == "`":
            self._read_backticks(is_double_quoted)
        elif not is_double_quoted and self.peek(1) == "'" and self.dialect.is_bash:
            self.depth -= 1
            self._read_ansi_quoted(draft)
            return True
        elif not is_double_quoted and self.peek(1) == '"':
            self.depth -= 1
            self.place += 1
            self._read_double_quoted(draft)
            return True
        else:
            self._read_dollar(is_double_quoted)
        self.depth -= 1
        if self.place == start:
            return False
        draft.add_expansion(self.text[start : self.place])
        return True

    def _read_dollar(self, is_double_quoted: bool) -> None:
        """Read `$…`; a dollar sign that stands for itself is left where it is."""
        following = self.peek(1)
        if following == "(":
            self.place += 1
            if not self.skip_arithmetic():
                if self.peek(1) == "(":
                    self.note_doubt("$((")
                self.place += 1
                self.read_substitution(")")
        elif following == "{":
            self.place += 2
            if self.dialect.runs_in_parameters and self.peek() in _FUNCTION_SUBSTITUTION:
                self.read_substitution("}")
            else:
                is_bad = not self.dialect.is_bash and self.peek() in _FUNCTION_SUBSTITUTION
                if is_bad or _BAD_PARAMETER.match(self.text, self.place):  # an error, but where does it end?
                    self.note_doubt("${")
                quotes_single = not is_double_quoted or self.dialect.quotes_in_parameters
                self._skip_to("}", quotes_single=quotes_single)
        elif following == "[" and self.dialect.is_bash:
            self.place += 2
            self._skip_to("]", opener="[")
        elif parameter := _PARAMETER.match(self.text, self.place + 1):
            self.place = parameter.end()

    def _read_backticks(self, is_double_quoted: bool) -> None:
        end = self.place + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        escapable = r'\\([`\\$"])' if is_double_quoted else r"\\([`\\$])"
        script = re.sub(escapable, r"\1", self.text[self.place + 1 : end])
        self.place = end + 1
        self.reader_of(script).read_substitution("")

    def _read_process(self, draft: Draft) -> None:
        start, is_fed = self.place, self.peek() == ">"
        self.place += 2
        self.read_substitution(")", is_piped=is_fed)
        draft.add_expansion(self.text[start : self.place])
        draft.has_process = True

    def _read_array(self) -> None:
        """Read `(…)` behind `name=`: words that are stored and not run."""
        self.place += 1
        self.allows_arrays = False
        while sign := self.peek():
            if sign == ")":
                self.place += 1
                break
            if sign in " \t\n":
                self.place += 1
            elif sign == "#":
                end = self.text.find("\n", self.place)
                self.place = len(self.text) if end < 0 else end
            elif sign in _METACHARACTERS and not (sign in "<>" and self.peek(1) == "("):
                self.start_anew(self.place)
            else:
                self.read_word()
        self.allows_arrays = True

    def start_anew(self, place: int) -> None:
        """Read the lines behind a place as a script of their own: after an error in an array bash does the same."""
        end = self.text.find("\n", place)
        rest = self.text[end:] if end >= 0 else ""
        self.place = len(self.text)
        self.reader_of(rest).read_substitution("")

    def _read_element(self, draft: Draft) -> None:
        """Read `name[…]`, where the subscript may hold blanks and anything else."""
        element = _ELEMENT.match(self.text, self.place)
        if element is None:
            return
        start, self.place = self.place, element.end()
        if self._skip_to("]", opener="[", limit=element.end() + _MAX_SUBSCRIPT):
            draft.add(self.text[start : element.end()] + "]")
        elif self.peek():
            raise TooDeepError
        else:
            self.place = start

    def _skip_to(
        self, closer: str, *, opener: str = "", quotes_single: bool = True, limit: float = float("inf")
    ) -> bool:
        """Read up to and with `closer`; what would be run in between is found. False when there is none."""
        depth = 1
        while self.place < limit and (sign := self.peek()):
            if sign == "\\":
                self.place += 2
            elif sign == "'" and quotes_single:
                self._single_quoted()
            elif sign == '"':
                self._read_double_quoted(Draft())
            elif sign in "<>" and self.peek(1) == "(" and quotes_single and self.dialect.is_bash:
                self._read_process(Draft())
            elif not self._read_expansion(Draft(), sign, is_double_quoted=not quotes_single):
                self.place += 1
                depth += (sign == opener) - (sign == closer)
                if depth == 0:
                    return True
        return False

    def _arithmetic_end(self) -> int | None:
        """Return where `((…))` ends, None when its parentheses do not pair up that way."""
        if self.text[self.place : self.place + 2] != "((":
            return None
        depth, place = 2, self.place + 2
        end = min(len(self.text), place + _MAX_ARITHMETIC)
        while place < end:
            sign = self.text[place]
            if sign == "\\":
                place += 1
            elif sign in "'\"":
                place = self.text.find(sign, place + 1)
                if place < 0:
                    return None
            elif sign in "()":
                depth += 1 if sign == "(" else -1
                if depth == 1:
                    return place + 2 if self.text[place + 1 : place + 2] == ")" else None
            place += 1
        return None


def _unescaped(escape: re.Match[str]) -> str:
    octal, braced, byte, short, long, control, letter = escape.groups()
    if octal:
        return chr(int(octal, 8) & 0xFF)
    if control:
        return chr(ord(control) & 0x1F)
    if letter:
        return _ANSI_LETTERS.get(letter, letter if letter in "\\'\"?" else "\\" + letter)
    code = int(braced or byte or short or long or "0", 16)
    return chr(code) if code < 0x110000 else ""
