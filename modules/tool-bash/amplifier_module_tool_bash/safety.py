"""Which commands a safety profile refuses."""

import itertools
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Any

from .shell_programs import Program, Programs, operators_of, programs_of
from .shell_word import Word
from .shell_words import TooDeepError

# The dangers that the safety profiles know, as a table: what each is called, who refuses it, how it is recognized.


class SafetyProfile(StrEnum):
    """How much a shell is trusted with, from little to everything."""

    STRICT = "strict"
    STANDARD = "standard"
    PERMISSIVE = "permissive"
    UNRESTRICTED = "unrestricted"


_STRICT = frozenset({SafetyProfile.STRICT})
_NORMAL = _STRICT | {SafetyProfile.STANDARD}
_ALWAYS = _NORMAL | {SafetyProfile.PERMISSIVE}

_SYSTEM_DIRECTORIES = (
    "etc", "usr", "bin", "sbin", "lib", "lib64", "boot", "dev", "proc", "sys", "var", "home", "root", "opt",
)  # fmt: skip
_HOME = re.compile(r"~[\w.-]*|\$HOME(?!\w)|\$\{HOME[^}]*\}")
_EVERYTHING = re.compile(r"(?:/\*+)+$")
_ALLOWED_DEVICES = re.compile(r"/dev/(?:null|stdout|stderr|tty|fd/.+)")
_GLOB = re.compile(r"[*?\[]")
_OCTAL_777 = re.compile(r"0*777")
_SYMBOLIC_777 = re.compile(r"(?:a|ugo)?[+=]rwx")
_ZERO_SOURCES = ("/dev/zero", "/dev/random")

_FORK_BOMB = re.compile(
    r"(?<![^\s;{(&|])([^\s(){};|&<>\"'`$]{1,64})\s*(?:\(\s*\))?\s*[{(][^{}]{0,200}?"
    r"(?<![^\s;{(])\1\s*\|\s*\1\s*&"
)
_DD_FILL = re.compile(r"\bdd\s+if=(/dev/zero|/dev/random)\b")
_CHMOD_ROOT = re.compile(r"\bchmod\s+(?:-\S+\s+)*0*777\s+/(?![\w.*-])")


@dataclass(frozen=True, slots=True)
class Rule:
    """One danger: its name, why it is refused, by which profiles, and what recognizes it."""

    name: str
    reason: str
    profiles: frozenset[SafetyProfile]
    is_met: Callable[[str, Programs], bool]

    @property
    def hint(self) -> str:
        """What to do if it is wanted all the same."""
        if self.profiles == _STRICT:
            return "rewrite the command, or set safety_profile to 'standard', 'permissive' or 'unrestricted'"
        if self.profiles == _NORMAL:
            return "find another way, or set safety_profile to 'permissive' or 'unrestricted'"
        return "this is refused even by the profile 'permissive'; only 'unrestricted' runs it"


def _starts(*names: str) -> Callable[[str, Programs], bool]:
    """Return the test for a program of one of these names."""
    return lambda text, programs: any(program.name in names for program in programs.started)


def _is_mkfs(text: str, programs: Programs) -> bool:
    return any(program.name == "mkfs" or program.name.startswith("mkfs.") for program in programs.started)


def _calls(programs: Programs, name: str) -> Iterator[Program]:
    return (program for program in programs.started if program.name == name)


def _has_option(program: Program, letters: str, *names: str) -> bool:
    """True if one of the options is given, in a cluster, by its name or by the beginning of that."""
    options = itertools.takewhile(lambda value: value != "--", (word.value for word in program.arguments))
    for option in options:
        if option.startswith("--"):
            if len(option) > 2 and any(name.startswith(option) for name in names):
                return True
        elif option.startswith("-") and any(letter in option for letter in letters):
            return True
    return False


def _operands(program: Program) -> Iterator[Word]:
    """Yield the arguments that are not options."""
    are_options_over = False
    for word in program.arguments:
        if word.value == "--" and not are_options_over:
            are_options_over = True
        elif are_options_over or not word.value.startswith("-"):
            yield word


def _path(word: Word) -> str:
    """Return the path that a word names, in its shortest form and without `/*` at its end; home is `~`."""
    value = word.value
    if home := _HOME.match(value):
        is_home = word.has_tilde if value.startswith("~") else not word.is_literal
        rest = "/" + _EVERYTHING.sub("", value[home.end() :])
        if is_home and value[home.end() :][:1] in ("", "/") and posixpath.normpath(rest) in ("/", "//"):
            return "~"
    if not value.startswith("/"):
        return f"./{value}"
    return "/" + posixpath.normpath(_EVERYTHING.sub("/", value)).lstrip("/")


def _is_root(word: Word) -> bool:
    return _path(word) == "/"


def _is_protected(word: Word) -> bool:
    """True if a word names the root, a home or a directory of the system, perhaps among others."""
    path = _path(word)
    if path in ("/", "~"):
        return True
    first = path[1:]
    if not path.startswith("/") or "/" in first:
        return False
    return any(first == name or (_GLOB.search(first) and fnmatchcase(name, first)) for name in _SYSTEM_DIRECTORIES)


def _deletes(is_target: Callable[[Word], bool]) -> Callable[[str, Programs], bool]:
    """Return the test for a recursive and forced deletion of such targets."""
    return lambda text, programs: any(
        _has_option(program, "rR", "--recursive")
        and _has_option(program, "f", "--force", "--no-preserve-root")
        and any(map(is_target, _operands(program)))
        for program in _calls(programs, "rm")
    )


def _is_device(path: str) -> bool:
    """True if something written to this path would reach a device that is not harmless."""
    if not path.startswith("/"):
        return False
    path = "/" + posixpath.normpath(path).lstrip("/")
    first, _, rest = path[1:].partition("/")
    is_dev = first == "dev" or (_GLOB.search(first) is not None and fnmatchcase("dev", first))
    return is_dev and rest != "" and _ALLOWED_DEVICES.fullmatch(f"/dev/{rest}") is None


def _writes_device(text: str, programs: Programs) -> bool:
    return any(_is_device(word.value) for word in programs.written)


def _fills(source: str) -> Callable[[str, Programs], bool]:
    def is_met(text: str, programs: Programs) -> bool:
        return any(match[1] == source for match in _DD_FILL.finditer(text)) or any(
            value.startswith("if=") and posixpath.normpath(value[3:]) == source
            for program in _calls(programs, "dd")
            for value in (word.value for word in program.arguments)
        )

    return is_met


def _copies_to_device(text: str, programs: Programs) -> bool:
    return any(
        word.value.startswith("of=") and _is_device(word.value[3:])
        for program in _calls(programs, "dd")
        for word in program.arguments
    )


def _opens_root(text: str, programs: Programs) -> bool:
    if _CHMOD_ROOT.search(text):
        return True
    for program in _calls(programs, "chmod"):
        mode, *targets = [*_operands(program), Word("")]
        is_open = _OCTAL_777.fullmatch(mode.value) or _SYMBOLIC_777.fullmatch(mode.value)
        if is_open and any(map(_is_root, targets)):
            return True
    return False


def _gives_root_away(text: str, programs: Programs) -> bool:
    return any(
        _has_option(program, "R", "--recursive") and any(map(_is_root, list(_operands(program))[1:]))
        for program in _calls(programs, "chown")
    )


RULES = (
    Rule("rm -rf /", "it deletes the whole file system", _ALWAYS, _deletes(_is_root)),
    Rule("rm -rf", "it deletes a home or a directory of the system", _NORMAL, _deletes(_is_protected)),
    Rule("sudo", "it raises privileges", _NORMAL, _starts("sudo")),
    Rule("sudo (doas)", "it raises privileges", _NORMAL, _starts("doas")),
    Rule("su", "it switches to another user", _NORMAL, _starts("su")),
    Rule("mkfs", "it makes a file system and destroys what was there", _NORMAL, _is_mkfs),
    Rule("passwd", "it changes a password", _NORMAL, _starts("passwd")),
    *(Rule(f"dd if={source}", "it overwrites without end", _NORMAL, _fills(source)) for source in _ZERO_SOURCES),
    Rule("dd of=/dev/", "it overwrites a device", _NORMAL, _copies_to_device),
    Rule("> /dev/", "it writes to a device", _NORMAL, _writes_device),
    Rule("chmod 777 /", "it opens the root directory to everyone", _NORMAL, _opens_root),
    Rule("chown -R /", "it changes the owner of the whole file system", _NORMAL, _gives_root_away),
    Rule(":(){ :|:& };:", "it is a fork bomb", _ALWAYS, lambda _, p: any(map(_FORK_BOMB.search, p.scripts))),
    Rule("pipe to shell", "a shell would run what another program prints", _STRICT, lambda _, p: bool(p.fed_shells)),
    Rule("non-literal command", "the program to run is not known from the text", _STRICT, lambda _, p: bool(p.unknown)),
)

__all__ = ["SafetyConfig", "SafetyProfile", "SafetyResult", "SafetyValidator"]

_MAX_BYTES = 65_536
_WITH_OVERRIDES = frozenset({SafetyProfile.STANDARD, SafetyProfile.PERMISSIVE})


@dataclass(frozen=True, slots=True)
class SafetyConfig:
    """Commands that are allowed or denied beyond what a profile says.

    `safety_overrides` has the keys `allow` and `block`. What is allowed counts in the profiles `standard` and
    `permissive`, what is denied in all but `unrestricted`.
    """

    allowed_commands: Sequence[str] = ()
    denied_commands: Sequence[str] = ()
    safety_overrides: dict[str, Any] | None = None

    def overrides(self, key: str) -> list[str]:
        return list((self.safety_overrides or {}).get(key) or [])


@dataclass(frozen=True, slots=True)
class SafetyResult:
    """The verdict; a denial says why, by which rule, and what would allow the command."""

    allowed: bool
    reason: str | None = None
    matched_pattern: str | None = None
    hint: str | None = None
    is_understood: bool = True


@dataclass(frozen=True, slots=True)
class _Pattern:
    """An entry of a list of commands, in which `*` stands for anything and case does not count."""

    text: str
    expression: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        parts = map(re.escape, self.text.strip().split("*"))
        object.__setattr__(self, "expression", re.compile(".*".join(parts), re.IGNORECASE | re.DOTALL))

    def covers(self, command: str, shell: str) -> bool:
        """True if the pattern allows the whole command; `*` does not stand for a second one."""
        if self.expression.fullmatch(command) is None:
            return False
        return "*" not in self.text or all(operator in self.text for operator in operators_of(command, shell))

    def finds(self, texts: Iterable[str]) -> bool:
        """True if the pattern denies one of the texts; without `*` it may stand anywhere in it."""
        if not self.text.strip():
            return False
        is_met = self.expression.fullmatch if "*" in self.text else self.expression.search
        return any(is_met(text) for text in texts)


class SafetyValidator:
    """Judges commands by one profile. Raises `ValueError` for a profile that does not exist."""

    def __init__(self, profile: str = SafetyProfile.STRICT, config: SafetyConfig | None = None) -> None:
        try:
            self.profile = SafetyProfile(profile)
        except ValueError:
            valid = ", ".join(SafetyProfile)
            raise ValueError(f"Unknown profile '{profile}'. Valid profiles: {valid}") from None
        config = config or SafetyConfig()
        self._allowed = [_Pattern(text) for text in (*config.overrides("allow"), *config.allowed_commands)]
        self._denied = [_Pattern(text) for text in config.denied_commands]
        self._blocked = [_Pattern(text) for text in config.overrides("block")]

    def validate(self, command: str, shell: str = "bash") -> SafetyResult:
        """Judge a command that `shell` would run."""
        command = command.strip()
        if self.profile is SafetyProfile.UNRESTRICTED or not command:
            return SafetyResult(allowed=True)
        if len(command.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
            return _not_understood()
        try:
            return self._judge(command, shell)
        except (TooDeepError, RecursionError):
            return _not_understood()

    def _judge(self, command: str, shell: str) -> SafetyResult:
        if self.profile in _WITH_OVERRIDES and any(pattern.covers(command, shell) for pattern in self._allowed):
            return SafetyResult(allowed=True)
        programs = programs_of(command, shell)
        for rule in RULES:
            if self.profile in rule.profiles and rule.is_met(command, programs):
                return SafetyResult(allowed=False, reason=rule.reason, matched_pattern=rule.name, hint=rule.hint)
        texts = [command, *programs.texts]
        for key, patterns in (("denied_commands", self._denied), ("safety_overrides.block", self._blocked)):
            for pattern in patterns:
                if pattern.finds(texts):
                    hint = f"it is listed in {key}; only safety_profile 'unrestricted' ignores that list"
                    return SafetyResult(
                        allowed=False, reason="the configuration denies it", matched_pattern=pattern.text, hint=hint
                    )
        return SafetyResult(allowed=True)


def _not_understood() -> SafetyResult:
    """Return the verdict on what cannot be read in reasonable time: a person who says yes outranks it."""
    hint = "split the command; even the profile 'permissive' wants to read it, only 'unrestricted' does not"
    reason = "it is nested too deeply, or too long, to be understood"
    return SafetyResult(False, reason, "non-literal command", hint, is_understood=False)
