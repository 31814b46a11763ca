"""The simple commands of a shell script, wherever they stand: in lists, loops, functions, subshells, substitutions."""

import re
from dataclasses import dataclass, field

from .shell_word import Redirect, Script, SimpleCommand, Word, may_evaluate
from .shell_words import MAX_DEPTH, Budget, Dialect, TooDeepError, WordReader

_QUOTED = re.compile(r"""'([^']*)'?|"([^"]*)"?|\\(.?)""", re.DOTALL)
_DELIMITER = re.compile(r"""(?:'[^']*'|"[^"]*"|\\.|[^ \t\n;&|()<>'"\\])+""", re.DOTALL)
_ESCAPE = re.compile(r"\\([$`\\])")
_UNESCAPED_EXPANSION = re.compile(r"(?<!\\)(?:\\\\)*(?:`|\$[\w{(\[@*#?$!-])")


class HereDocumentReader(WordReader):
    """Reads words and, at the end of a line, the documents that were announced in it."""

    def __init__(self, text: str, dialect: Dialect, budget: Budget, depth: int = 0) -> None:
        super().__init__(text, dialect, budget, depth)
        self.here_documents: list[Redirect] = []

    def expect_here_document(self, redirect: Redirect) -> None:
        """Read the word that ends a document, which begins in the next line."""
        redirect.target = self._read_delimiter()
        self.here_documents.append(redirect)

    def read_here_documents(self, until: str) -> None:
        """Read what was announced; `until` ends the list of commands around it, nothing if the text does."""
        waiting, self.here_documents = self.here_documents, []
        for redirect in waiting:
            self._read_document(redirect, until)

    def _read_delimiter(self) -> Word:
        """Read the word that ends a here-document: quotes count, expansions do not."""
        start = self.place
        if self.dialect.is_bash:
            self.read_word()  # even an expansion is taken as it is written
        elif plain := _DELIMITER.match(self.text, start):
            self.place = plain.end()
        written = self.text[start : self.place]
        delimiter = _QUOTED.sub(lambda quoted: quoted[1] or quoted[2] or quoted[3] or "", written)
        return Word(delimiter, is_plain=delimiter == written)

    def _read_document(self, redirect: Redirect, until: str) -> None:
        delimiter, is_expanded = redirect.target.value, redirect.target.is_plain
        lines: list[str] = []
        while self.place < len(self.text):
            start = self.place
            line = self._read_line(joins=is_expanded and self.dialect.is_bash)
            line = line.lstrip("\t") if redirect.operator == "<<-" else line
            if line == delimiter:
                break
            if until and line.startswith(delimiter) and until in line[len(delimiter) :]:
                self.note_doubt("<<")
                if self.dialect.is_bash:  # the document ends before the end of the line
                    self.place = self.text.index(delimiter, start) + len(delimiter)
                    break
            lines.append(line)
        redirect.body = body = "\n".join(lines)
        if is_expanded:
            self.reader_of(body).read_expansions()
            redirect.body = _ESCAPE.sub(r"\1", body)
            redirect.target = Word(delimiter, is_literal=_UNESCAPED_EXPANSION.search(body) is None)

    def _read_line(self, *, joins: bool) -> str:
        """Read one line, with what a backslash at its end joins to it."""
        line = ""
        while True:
            end = self.text.find("\n", self.place)
            end = len(self.text) if end < 0 else end
            line += self.text[self.place : end]
            self.place = end + 1
            backslashes = len(line) - len(line.rstrip("\\"))
            if not joins or backslashes % 2 == 0 or self.place >= len(self.text):
                return line
            line = line[:-1]


_REDIRECT = re.compile(r"(\d+|\{\w+\})?(&>>|&>|<<<|<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())")
_PLAIN_REDIRECT = re.compile(r"(\d+)?(<<-|<<|<>|<&|>>|>&|>\||<(?!\()|>(?!\())")
_OPERATOR = re.compile(r";;&|;;|;&|&&|\|\||\|&|[|&;\n()]")
_BLANK = re.compile(r"(?:[ \t]|\\\n)+")
_COMMENT = re.compile(r"#[^\n]*")
_FUNCTION = re.compile(r"\([ \t]*\)")
_CONDITION_SIGNS = re.compile(r"&&|\|\||\||[()<>]")

_OPENERS = frozenset({"if", "while", "until", "for", "select", "case", "{"})
_CLOSERS = {"fi": ("if",), "done": ("while", "until", "for", "select"), "esac": ("case",), "}": ("{",)}
_CONTINUERS = frozenset({"then", "do", "else", "elif", "!"})
_KEYWORDS = _OPENERS | _CLOSERS.keys() | _CONTINUERS | {"function", "[["}
_HEADERS = frozenset({"for", "select"})
_MAX_OPEN = 100


@dataclass(slots=True)
class _Compound:
    """A compound command: where its commands begin, and of a `case` whether a pattern is being read."""

    opener: str
    first: int
    is_piped: bool
    in_pattern: bool = False
    has_pattern: bool = False
    parentheses: int = 0


@dataclass(slots=True)
class _Scope:
    """What is known about the list of commands that is being read."""

    until: str
    is_piped: bool
    open: list[_Compound] = field(default_factory=list)
    closed: _Compound | None = None
    current: SimpleCommand = field(default_factory=SimpleCommand)
    follows_pipe: bool = False
    defines_function: bool = False

    @property
    def is_fed(self) -> bool:
        """True if what is read now gets its input from a pipe."""
        return self.follows_pipe or (self.open[-1].is_piped if self.open else self.is_piped)


def read_script(text: str, dialect: Dialect, budget: Budget, *, is_piped: bool = False) -> Script:
    """Return what a script runs; raises `TooDeepError`. What the shell would refuse to parse is read all the same."""
    script = Script()
    _ScriptReader(text, dialect, budget, script).read_substitution("", is_piped=is_piped)
    return script


class _ScriptReader(HereDocumentReader):
    """Reads lists of commands. It never gives up: an opening sign without its partner lasts to the end."""

    def __init__(
        self, text: str, dialect: Dialect, budget: Budget, script: Script, depth: int = 0, *, is_fed: bool = False
    ) -> None:
        super().__init__(text, dialect, budget, depth)
        self._redirect = _REDIRECT if dialect.is_bash else _PLAIN_REDIRECT
        self._script = script
        self._scope = _Scope("", is_fed)

    def reader_of(self, text: str) -> "_ScriptReader":
        return _ScriptReader(text, self.dialect, self.budget, self._script, self.depth + 1, is_fed=self._scope.is_fed)

    def note_doubt(self, text: str) -> None:
        self._script.commands.append(SimpleCommand([Word(text, is_literal=False)]))

    def read_substitution(self, until: str, *, is_piped: bool = False) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise TooDeepError
        if self.depth > 1:
            self._script.operators.add("$(" if until else "`")
        outer, self._scope = self._scope, _Scope(until, is_piped or self._scope.is_fed)
        waiting, self.here_documents = self.here_documents, []
        allows_arrays, self.allows_arrays = self.allows_arrays, True
        while self._step():
            pass
        self._finish()
        if until and self.here_documents:  # shells disagree about where such a document begins
            self.note_doubt("<<")
        self.here_documents, self.allows_arrays, self._scope = waiting, allows_arrays, outer
        self.depth -= 1

    def _step(self) -> bool:
        """Read the next token; False where the list of commands ends."""
        self.budget.check()
        self._skip_blanks()
        scope = self._scope
        if not self.peek():
            return False
        if scope.open and scope.open[-1].in_pattern:
            self._read_pattern(scope.open[-1])
        elif redirect := self._redirect.match(self.text, self.place):
            self.place = redirect.end()
            self._read_redirect(Redirect(redirect[2], redirect[1] or ""))
        elif operator := _OPERATOR.match(self.text, self.place):
            return self._read_operator(operator.group())
        else:
            place, words = self.place, scope.current.words
            may_assign = self._is_prefix(words) and (len(words) < 2 or words[0].value == "time")
            for word in self.read_word(may_assign=may_assign):
                if not self._take(word):
                    return False
            if scope.defines_function and scope.current.words + scope.current.assignments:
                # No function has such a body. The shell finds out here, or at an array before, and drops the line.
                self.note_doubt("function")
                self.start_anew(place)
        return True

    def _skip_blanks(self) -> None:
        if blank := _BLANK.match(self.text, self.place):
            self.place = blank.end()
        if comment := _COMMENT.match(self.text, self.place):
            self.place = comment.end()

    def _skip_lines(self) -> None:
        """Skip blanks and line ends."""
        self._skip_blanks()
        while self.peek() == "\n":
            self._end_line()
            self._skip_blanks()

    # --- operators

    def _read_operator(self, operator: str) -> bool:
        scope = self._scope
        self._script.operators.update(sign for sign in operator if sign in ";&|\n")
        if operator == "(":
            self._open_parenthesis()
            return True
        if operator == "\n":
            is_pending = scope.follows_pipe and scope.current.is_empty and scope.closed is None
            self._end_line()
            if not is_pending:
                self._end_command()
            return True
        self.place += len(operator)
        self._end_command()
        scope.defines_function = False
        if operator == ")":
            return self._close(("(",)) or scope.until != ")"
        if operator in ("|", "|&"):
            scope.follows_pipe = True
        elif operator.startswith(";") and len(operator) > 1 and scope.open and scope.open[-1].opener == "case":
            scope.open[-1].in_pattern = True
        return True

    def _open_parenthesis(self) -> None:
        scope = self._scope
        words = scope.current.words
        definition = _FUNCTION.match(self.text, self.place)
        if len(words) == 1 and definition:
            self._drop_current()
            scope.defines_function = True
            self.place = definition.end()
            return
        may_be_arithmetic = not words or [word.value for word in words] == ["for"]
        if may_be_arithmetic and self.dialect.is_bash and self.skip_arithmetic():
            self._drop_current()  # behind the head of a loop comes its body
            return
        self.place += 1
        self._open("(")

    def _end_line(self) -> None:
        """Go on to the next line, past the here-documents that begin there."""
        self.place += 1
        self.read_here_documents(self._scope.until)

    def _end_command(self) -> None:
        self._finish()
        self._scope.closed = None
        self._scope.follows_pipe = False

    def _finish(self) -> None:
        """Add the command that was read, if there is one."""
        scope = self._scope
        command = scope.current
        if command.is_empty:
            return
        command.is_piped = scope.is_fed
        self._script.commands.append(command)
        scope.current = SimpleCommand()
        if [word.value for word in command.words] == ["exec"] and any(one.feeds_stdin for one in command.redirects):
            scope.is_piped = True  # from here on everything reads from there
            for compound in scope.open:
                compound.is_piped = True

    def _drop_current(self) -> None:
        self._scope.current = SimpleCommand()

    # --- words and keywords

    def _take(self, word: Word) -> bool:
        """Add a word to the command, or do what it means as a keyword; False where the list of commands ends."""
        scope = self._scope
        current = scope.current
        is_start = self._is_prefix(current.words)
        if is_start and word.is_plain and word.value in _KEYWORDS and not (current.assignments or current.redirects):
            if word.value in _CONTINUERS and current.words:
                return True  # `time ! command`
            if current.words:
                self._drop_current()
            return self._take_keyword(word.value)
        if is_start and word.is_assignment:
            current.assignments.append(word)
        else:
            current.words.append(word)
        values = [other.value for other in current.words[:3]]
        if word.is_plain and len(values) == 3 and values[0] in _HEADERS and values[2] == "do":
            self._finish()
        return True

    def _is_prefix(self, words: list[Word]) -> bool:
        """True if a command can still begin behind these words: nothing, `time -p`, `coproc`, `coproc NAME`."""
        if not words or not self.dialect.is_bash:
            return not words
        if words[0].value == "coproc":
            return len(words) <= 2
        if words[0].value != "time" or any(word.value not in ("-p", "--", "time") for word in words[1:_MAX_OPEN]):
            return False
        if len(words) > _MAX_OPEN:
            raise TooDeepError
        return True

    def _take_keyword(self, keyword: str) -> bool:
        scope = self._scope
        if keyword in _OPENERS:
            self._open(keyword)
            if keyword in _HEADERS:
                scope.current.words.append(Word(keyword))
            elif keyword == "case":
                self._read_case()
        elif keyword in _CLOSERS:
            return self._close(_CLOSERS[keyword]) or scope.until != keyword
        elif keyword == "function":
            self._skip_blanks()
            self.read_word()
            self._skip_blanks()
            if definition := _FUNCTION.match(self.text, self.place):
                self.place = definition.end()
            scope.defines_function = True
        elif keyword == "[[":
            if self.dialect.is_bash:
                self._read_condition()
            else:
                scope.current.words.append(Word(keyword))
        return True

    def _open(self, opener: str) -> None:
        scope = self._scope
        is_piped = scope.is_fed or scope.defines_function
        if not scope.current.is_empty:
            is_piped = is_piped or scope.current.words[:1] == [Word("coproc")]
            self._finish()
        if len(scope.open) >= _MAX_OPEN:
            raise TooDeepError
        scope.open.append(_Compound(opener, len(self._script.commands), is_piped))
        scope.closed, scope.follows_pipe, scope.defines_function = None, False, False

    def _close(self, openers: tuple[str, ...]) -> bool:
        """Close the innermost compound command of that kind; False when there is none."""
        scope = self._scope
        place = next((i for i in reversed(range(len(scope.open))) if scope.open[i].opener in openers), None)
        if place is None:
            return False
        scope.closed = scope.open[place]
        del scope.open[place:]
        return True

    def _read_case(self) -> None:
        self._skip_blanks()
        self.read_word()
        self._skip_lines()
        place = self.place
        if self.read_word() == [Word("in")]:
            self._scope.open[-1].in_pattern = True
        else:
            self.place = place

    def _read_pattern(self, case: _Compound) -> None:
        sign = self.peek()
        if sign == "\n":
            self._end_line()
        elif sign == "(":
            case.parentheses += case.has_pattern
            self.place += 1
        elif sign == ")":
            self.place += 1
            if case.parentheses:
                case.parentheses -= 1
            else:
                case.in_pattern = case.has_pattern = False
        elif sign == "|":
            self.place += 1
        elif sign in ";&" or self._redirect.match(self.text, self.place):
            case.in_pattern = case.has_pattern = False
        elif self.read_word() == [Word("esac")] and not case.has_pattern:
            self._close(("case",))
        else:
            case.has_pattern = True

    def _read_condition(self) -> None:
        """Read `[[ … ]]`, in which operators compare and combine."""
        may_break = True
        while sign := self.peek():
            self._skip_blanks()
            sign = self.peek()
            is_process = sign in ("<", ">") and self.peek(1) == "("
            signs = None if is_process else _CONDITION_SIGNS.match(self.text, self.place)
            if sign == "\n" and may_break:
                self._end_line()
            elif signs:
                self.place = signs.end()
                may_break = True
            elif sign in ("", "\n", ";", "&") or (words := self.read_word()) == [Word("]]")]:
                return
            else:
                may_break = False
                for word in filter(may_evaluate, words):
                    self.reader_of(word.value).read_expansions()

    # --- redirections

    def _read_redirect(self, redirect: Redirect) -> None:
        scope = self._scope
        self._skip_blanks()
        if redirect.operator in ("<<", "<<-"):
            self.expect_here_document(redirect)
        else:
            redirect.target = next(iter(self.read_word()), redirect.target)
        if scope.current.is_empty and scope.closed is not None:
            if redirect.feeds_stdin:
                for command in self._script.commands[scope.closed.first :]:
                    if not any(one.feeds_stdin for one in command.redirects):
                        command.redirects.append(redirect)
            self._script.commands.append(SimpleCommand(redirects=[redirect]))
        else:
            scope.current.redirects.append(redirect)
