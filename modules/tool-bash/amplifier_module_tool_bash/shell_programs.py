"""The programs a shell command starts, also through wrappers, other shells and words that are run as scripts."""

import itertools
import posixpath
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from .shell_script import read_script
from .shell_word import Redirect, SimpleCommand, Word, may_evaluate
from .shell_words import Budget, Dialect, TooDeepError

_SHELL = re.compile(r"(?:r?bash|sh|dash|ash|hush|r?zsh|fish|t?csh|yash|(?:m|pd|ok|lo|r)?ksh)(?:-?\d[\d.]*)?")
_BASH = re.compile(r"r?bash(?:-?\d[\d.]*)?")
_SHELL_FLAGS = frozenset({
    "debug", "debugger", "dump-po-strings", "dump-strings", "help", "interactive", "login", "no-config", "noediting",
    "noprofile", "norc", "posix", "pretty-print", "private", "protected", "restricted", "verbose", "version", "wordexp",
})  # fmt: skip
_SHELL_SETTINGS = frozenset({"rcfile", "init-file", "emulate", "features", "debug-output", "profile"})
_SHELL_SCRIPTS = frozenset({"command", "init-command", "C"})
_INPUT_FILE = re.compile(r"-|/dev/stdin|/dev/fd/.*|/proc/[^/]+/(?:task/[^/]+/)?fd/.*")
_LOOKUP = frozenset("vV")
# Builtins that look at the subscript of a name they are given, and run what is substituted there.
_EVALUATING = frozenset({
    "[", "declare", "export", "getopts", "let", "local", "mapfile", "printf", "read", "readarray", "readonly", "test",
    "typeset", "unset", "wait",
})  # fmt: skip
_COMMAND_TABLES = re.compile(r"(BASH_CMDS|BASH_ALIASES)\[")
# What reads commands from elsewhere: the history, or a library.
_ELSEWHERE = {"fc": (), "enable": ("-f",), "bind": ("-x",), "set": ("-H", "histexpand", "history")}
_IN_PARAMETER = re.compile(r"\$\{[ \t\n|(]")
_MAX_NESTING = 20
_MAX_WRAPPERS = 100
_MAX_SHIFT = 10


@dataclass(frozen=True, slots=True)
class Program:
    """A program, by the last part of its path in lower case, and its arguments."""

    name: str
    arguments: tuple[Word, ...]


@dataclass(slots=True)
class Programs:
    """What a command starts; what cannot be known from its text; where it writes."""

    started: list[Program] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    fed_shells: list[str] = field(default_factory=list)
    written: list[Word] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    scripts: list[str] = field(default_factory=list)


def programs_of(command: str, shell: str = "bash") -> Programs:
    """Return the programs that a command starts; raises `TooDeepError`."""
    finder = _Finder()
    finder.read(command, shell, is_piped=False, nesting=0)
    return finder.found


def operators_of(command: str, shell: str = "bash") -> set[str]:
    """Return the operators by which a command runs more than one program: `;`, `&`, `|`, line ends, substitutions."""
    budget = Budget()
    return {
        operator
        for text, dialect in _readings(command, shell)
        for operator in read_script(text, dialect, budget).operators
    }


def is_shell(name: str) -> bool:
    return _SHELL.fullmatch(name) is not None


@dataclass(frozen=True, slots=True)
class _Surroundings:
    """What a program inherits from where it stands: the command and how deep in it, behind how many wrappers.

    `stdin` is the redirection of a script around it, if there is one; `is_open` when further words are appended as it
    runs, `is_shifted` when it is one of several that may be meant.
    """

    command: SimpleCommand
    nesting: int
    is_piped: bool
    stdin: Redirect | None = None
    is_open: bool = False
    is_shifted: bool = False
    wrappers: int = 0


class _Finder:
    """Follows a command into everything it runs. The same script is read once, however often it turns up."""

    def __init__(self) -> None:
        self.found = Programs()
        self._budget = Budget()
        self._seen: set[tuple[object, ...]] = set()

    def read(self, script: str, shell: str, *, is_piped: bool, nesting: int, stdin: Redirect | None = None) -> None:
        key = (script, shell, is_piped, stdin and (stdin.operator, stdin.target, stdin.body))
        if key in self._seen:
            return
        self._seen.add(key)
        if nesting > _MAX_NESTING:
            raise TooDeepError
        self.found.scripts.append(script)
        for text, dialect in _readings(script, shell):
            for command in read_script(text, dialect, self._budget, is_piped=is_piped).commands:
                self.found.written += [one.target for one in command.redirects if one.writes and one.target.value]
                around = _Surroundings(command, nesting, command.is_piped, stdin)
                self._follow_assignments(command.assignments, around)
                self._follow(command.words, around)

    def _follow_assignments(self, assignments: list[Word], around: _Surroundings) -> None:
        """Go on with what variables make the shell run: its tables of commands, and subscripts in arithmetic."""
        for word in assignments:
            value = replace(word, value=word.value.partition("=")[2])
            if _COMMAND_TABLES.match(word.value):
                self._run(value.value, "bash", around, is_literal=word.is_literal)
            self._follow_subscripts([value], around)

    def _follow_subscripts(self, words: list[Word], around: _Surroundings) -> None:
        for word in words:
            if may_evaluate(word):
                quoted = word.value.replace('"', '\\"')
                self._run(f': "{quoted}"', "bash", around, is_literal=True)

    def _follow(self, words: list[Word], around: _Surroundings) -> None:
        """Note the program that the first of the words names, and go on with what it runs."""
        if not words:
            return
        self._budget.check()
        around = replace(around, wrappers=around.wrappers + 1)
        if around.wrappers > _MAX_WRAPPERS:
            raise TooDeepError
        self.found.texts.append(" ".join(word.value for word in words))
        word, arguments = words[0], words[1:]
        if not word.is_literal:
            self.found.unknown.append(word.value)
            self._follow(arguments, around)  # it may turn out to be nothing
        name = posixpath.basename(word.value).lower()
        self.found.started.append(Program(name, tuple(arguments)))
        if name in _EVALUATING:
            self._follow_subscripts(arguments, around)
        if name in _ELSEWHERE and _is_given(arguments, _ELSEWHERE[name]):
            self.found.unknown.append(name)
        self._follow_into(name, word, arguments, around)

    def _follow_into(self, name: str, word: Word, arguments: list[Word], around: _Surroundings) -> None:
        """Go on with what a program runs that runs others."""
        if is_shell(name):
            self._follow_shell(name, arguments, around)
        elif name in ("eval", "trap", "alias"):
            self._follow_builtin(name, arguments, around)
        elif name in (".", "source"):
            self._check_source(word.value, arguments, around)
        elif name == "find":
            if around.is_open:  # what is appended can name programs to run
                self.found.unknown.append(name)
            for found in find_commands(arguments):
                self._follow(found, around)
        elif name == "watch":
            rest, _ = behind_options(WATCH, arguments)
            self._run(" ".join(one.value for one in rest), "sh", around, is_literal=_all_literal(rest))
        elif name in WRAPPERS:
            self._follow_wrapper(name, arguments, around)

    def _run(self, script: str, shell: str, around: _Surroundings, *, is_literal: bool) -> None:
        if not is_literal:
            self.found.unknown.append(script)
        stdin = around.command.stdin or around.stdin
        self.read(script, shell, is_piped=around.is_piped, nesting=around.nesting + 1, stdin=stdin)

    # --- programs that run others

    def _follow_wrapper(self, name: str, arguments: list[Word], around: _Surroundings) -> None:
        wrapper = WRAPPERS[name]
        rest, options = behind_options(wrapper, arguments)
        if name == "command" and any(_LOOKUP.intersection(option) for option, _ in options):
            return
        for value in (value for option, value in options if option in wrapper.scripts and value is not None):
            script = value.value
            if name == "env":  # the script is more arguments of env, with its own way to write a blank
                script = " ".join(["env", script.replace("\\_", " "), *(shlex.quote(word.value) for word in rest)])
            self._run(script, "sh", around, is_literal=_all_literal([value, *rest]))
        if name == "xargs":
            rest = [replaceable(word, xargs_marks(options)) for word in rest]
            around = replace(around, is_open=True)
        elif name == "coproc":
            around = replace(around, is_piped=True)
        if around.is_open and not rest and name != "xargs":
            self.found.unknown.append(name)
        self._follow(rest, around)
        skipped = arguments[: len(arguments) - len(rest)]
        if not _all_literal(skipped) and not around.is_shifted:
            first = next(place for place, word in enumerate(skipped) if not word.is_literal)
            self._follow_later(arguments[first:], replace(around, is_shifted=True))

    def _follow_later(self, words: list[Word], around: _Surroundings) -> None:
        """Follow the later words too: how many words stand before them is open, so one of them may be the program."""
        for place in range(1, min(len(words), _MAX_SHIFT)):
            if words[place].is_literal:
                self._follow(words[place:], around)

    def _follow_shell(self, name: str, arguments: list[Word], around: _Surroundings) -> None:
        call = _ShellCall(arguments)
        shell = "bash" if _BASH.fullmatch(name) else "sh"
        for script in call.scripts:
            self._run(script.value, shell, around, is_literal=script.is_literal)
        if call.lacks_script and around.is_open:
            self.found.unknown.append(f"{name} -c")
        text = " ".join([name, *(word.value for word in arguments)])
        if any(word.has_process for word in (*call.files, *around.command.settings)):
            self.found.fed_shells.append(text)
        if call.reads_stdin:
            self._check_input(text, shell, around)
        elif any(_INPUT_FILE.fullmatch(posixpath.normpath(word.value)) for word in call.files):
            self._check_input(text, shell, replace(around, is_piped=True))

    def _check_input(self, text: str, shell: str, around: _Surroundings) -> None:
        """Look at where a shell that reads its commands from stdin gets them."""
        redirect = around.command.stdin or (None if around.is_piped else around.stdin)
        if redirect is None:
            if around.is_piped:
                self.found.fed_shells.append(text)
        elif redirect.body is not None:
            self._run_input(redirect.body, shell, around, is_literal=redirect.target.is_literal)
        elif redirect.operator == "<<<":
            self._run_input(redirect.target.value, shell, around, is_literal=redirect.target.is_literal)
        elif _is_stream(redirect):
            self.found.fed_shells.append(text)

    def _run_input(self, script: str, shell: str, around: _Surroundings, *, is_literal: bool) -> None:
        self._run(script, shell, replace(around, is_piped=False), is_literal=is_literal)

    def _follow_builtin(self, name: str, arguments: list[Word], around: _Surroundings) -> None:
        operands = [word for word in arguments if word.value != "--"]
        if name == "eval":
            script = " ".join(word.value for word in operands)
            self._run(script, "bash", around, is_literal=_all_literal(operands) and not around.is_open)
        elif name == "trap":
            for word in operands[:1]:
                self._run(word.value, "bash", around, is_literal=True)
        else:
            for word in operands:
                self._run(word.value.partition("=")[2], "bash", replace(around, is_piped=True), is_literal=True)

    def _check_source(self, name: str, arguments: list[Word], around: _Surroundings) -> None:
        for word in arguments[:1]:
            if word.has_process:
                self.found.fed_shells.append(f"{name} {word.value}")
            elif word.value != "-" and _INPUT_FILE.fullmatch(posixpath.normpath(word.value)):
                self._check_input(f"{name} {word.value}", "bash", replace(around, is_piped=True))


class _ShellCall:
    """The arguments of a shell: the scripts among them, the files it reads, whether it reads stdin."""

    def __init__(self, arguments: list[Word]) -> None:
        self.scripts: list[Word] = []
        self.files: list[Word] = []
        wants_script = reads_stdin = is_open = False
        rest = list(arguments)
        while rest:
            word, value = rest[0], rest[0].value
            if value[:1] not in ("-", "+") or value == "-":
                is_open = not word.is_literal  # options or the operand: only the shell knows
                break
            del rest[0]
            if value == "--":
                break
            option, _, attached = value.lstrip("-").partition("=")
            if option in _SHELL_FLAGS:
                continue
            if option in _SHELL_SETTINGS or option in _SHELL_SCRIPTS:
                values = [replace(word, value=attached)] if attached else [rest.pop(0)] if rest else []
                (self.scripts if option in _SHELL_SCRIPTS else self.files).extend(values)
                continue
            if value.startswith("--"):
                continue
            wants_script |= "c" in value
            reads_stdin |= "s" in value
            self.scripts += [replace(word, value=value.partition("c")[2])] if "c" in value[:-1] else []
            del rest[: value.count("o") + value.count("O")]
        self.lacks_script = wants_script and not rest
        (self.scripts if wants_script else self.files).extend(rest[:1])
        if is_open:
            self.scripts += [word for word in rest if word.is_literal]
        is_bare = not (rest or wants_script or self.scripts) or (is_open and not wants_script)
        self.reads_stdin = reads_stdin or is_bare or [word.value for word in rest[:1]] == ["-"]


def _readings(script: str, shell: str) -> Iterator[tuple[str, Dialect]]:
    """Yield every way in which the shell may read a script."""
    texts = [script]
    if "\\\n" in script:
        texts.append(script.replace("\\\n", ""))
    for text in texts:
        dialects = itertools.product(
            (True, False) if shell != "bash" else (True,),
            (False, True) if "${" in text and "'" in text else (False,),
            (True, False) if _IN_PARAMETER.search(text) else (True,),
        )
        for is_bash, quotes_in_parameters, runs_in_parameters in dialects:
            yield text, Dialect(is_bash, quotes_in_parameters, runs_in_parameters)


def _is_given(arguments: list[Word], options: tuple[str, ...]) -> bool:
    """True if one of the options is there; without any the program alone counts."""
    return not options or any(word.value in options for word in arguments)


def _all_literal(words: list[Word]) -> bool:
    return all(word.is_literal for word in words)


def _is_stream(redirect: Redirect) -> bool:
    """True if input comes from another program and not from a file."""
    target = redirect.target
    return redirect.operator == "<&" or target.has_process or _INPUT_FILE.fullmatch(target.value) is not None


# Programs that run other programs: where in their arguments those are named.


_FIND_ACTIONS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program that runs another one, named behind its options and so many operands.

    `valued` are the options whose value is a word of its own; `scripts` those whose value is run as a script.
    """

    valued: frozenset[str] = frozenset()
    operands: int = 0
    scripts: frozenset[str] = frozenset()
    takes_assignments: bool = False


def _wrapper(valued: str = "", operands: int = 0, scripts: str = "", *, takes_assignments: bool = False) -> Wrapper:
    return Wrapper(frozenset((valued + " " + scripts).split()), operands, frozenset(scripts.split()), takes_assignments)


_ALL = 1_000_000
WRAPPERS = {
    "builtin": _wrapper(),
    "busybox": _wrapper(),
    "chroot": _wrapper(operands=1),
    "chrt": _wrapper("-T --sched-runtime -P --sched-period -D --sched-deadline", operands=1),
    "command": _wrapper(),
    "compgen": _wrapper("-A -F -G -P -S -V -W -X -o", _ALL, "-C"),
    "complete": _wrapper("-A -F -G -P -S -W -X -o", _ALL, "-C"),
    "coproc": _wrapper(),
    "doas": _wrapper("-u -C -a"),
    "env": _wrapper("-u --unset -C --chdir -a --argv0", scripts="-S --split-string", takes_assignments=True),
    "exec": _wrapper("-a"),
    "flock": _wrapper("-w --wait --timeout -E --conflict-exit-code", operands=1, scripts="-c --command"),
    "hash": _wrapper(operands=_ALL, scripts="-p"),
    "ionice": _wrapper("-c --class -n --classdata -p --pid -P --pgid -u --uid"),
    "mapfile": _wrapper("-O -c -d -n -s -u", _ALL, "-C"),
    "nice": _wrapper("-n --adjustment"),
    "nohup": _wrapper(),
    "readarray": _wrapper("-O -c -d -n -s -u", _ALL, "-C"),
    "script": _wrapper("-B -E -I -O -T -m -o --log-in --log-out --log-io --log-timing", _ALL, "-c --command"),
    "setsid": _wrapper(),
    "stdbuf": _wrapper("-i --input -o --output -e --error"),
    "strace": _wrapper("-e -o -p -s -u -E -a -b -I -O -P -S -U -X --trace --output --env --user"),
    "su": _wrapper("-g --group -G --supp-group -s --shell -w --whitelist-environment", _ALL, "-c --command"),
    "sudo": _wrapper(
        "-u --user -g --group -h --host -p --prompt -C --close-from -r --role -t --type -T --command-timeout -U"
        " --other-user -D --chdir -R --chroot",
        takes_assignments=True,
    ),
    "taskset": _wrapper(operands=1),
    "time": _wrapper("-f --format -o --output"),
    "timeout": _wrapper("-k --kill-after -s --signal", operands=1),
    "toybox": _wrapper(),
    "unshare": _wrapper("-R --root -w --wd -S --setuid -G --setgid"),
    "xargs": _wrapper(
        "-a --arg-file -d --delimiter -E -I -J -L -n --max-args -P --max-procs -R -s --max-chars -S --process-slot-var"
    ),
}
WATCH = _wrapper("-n --interval -q --equexit")


def behind_options(wrapper: Wrapper, arguments: list[Word]) -> tuple[list[Word], list[tuple[str, Word | None]]]:
    """Return the words of the command that a wrapper runs, and the wrapper's options with their values."""
    options: list[tuple[str, Word | None]] = []
    place, operands = 0, wrapper.operands
    while place < len(arguments):
        word = arguments[place]
        if word.value == "--":
            place += 1
            break
        if word.value.startswith("-"):
            option, value, takes_next = _read_option(wrapper, word)
            place += 1
            if takes_next and place < len(arguments):
                value = arguments[place]
                place += 1
            options.append((option, value))
            if wrapper.takes_assignments and option in wrapper.scripts:
                return arguments[place:], options  # the script goes on with all that follows
        elif wrapper.takes_assignments and "=" in word.value:
            place += 1
        elif operands:
            operands -= 1
            place += 1
        else:
            break
    rest = arguments[place + operands :]
    if wrapper.takes_assignments:
        rest = list(itertools.dropwhile(lambda word: "=" in word.value, rest))
    return rest, options


def _read_option(wrapper: Wrapper, word: Word) -> tuple[str, Word | None, bool]:
    """Return an option's name, the value attached to it, and whether its value is the next word."""
    text = word.value
    if text.startswith("--"):
        given, sign, attached = text.partition("=")
        name = next((known for known in sorted(wrapper.valued) if known.startswith(given)), given)
        return name, replace(word, value=attached) if sign else None, not sign and name in wrapper.valued
    for place, letter in enumerate(text[1:], 2):
        if f"-{letter}" in wrapper.valued:
            attached = text[place:]
            return f"-{letter}", replace(word, value=attached) if attached else None, not attached
    return text, None, False


def find_commands(arguments: list[Word]) -> Iterator[list[Word]]:
    """Yield the commands that `find` runs; each lasts up to where it is ended or another may begin."""
    values = [word.value for word in arguments]
    starts = [place for place, value in enumerate(values, 1) if value in _FIND_ACTIONS]
    for place, next_place in itertools.pairwise([*starts, len(values) + 1]):
        end = next((i for i in range(place, next_place - 1) if _ends_action(values, i)), next_place - 1)
        yield [replaceable(word, ["{}"]) for word in arguments[place:end]]


def _ends_action(values: list[str], place: int) -> bool:
    return values[place] == ";" or (values[place] == "+" and values[place - 1] == "{}")


def xargs_marks(options: list[tuple[str, Word | None]]) -> list[str]:
    """Return what `xargs` replaces in its words."""
    marks = []
    for option, value in options:
        if option in ("-I", "-J", "--replace"):
            marks.append(value.value if value else "{}")
        elif option.startswith("-i"):
            marks.append(option[2:] or "{}")
    return marks


def replaceable(word: Word, marks: list[str]) -> Word:
    """Return the word, not literal when it holds something that is replaced as the program runs."""
    return replace(word, is_literal=False) if any(mark and mark in word.value for mark in marks) else word
