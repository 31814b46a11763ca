"""Programs that run other programs: where in their arguments those are named."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .shell_word import Word

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
