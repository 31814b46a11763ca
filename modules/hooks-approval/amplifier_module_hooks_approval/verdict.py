"""A call under guard, and the decision on it."""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Self

from amplifier_core.interfaces import ApprovalResponse
from amplifier_core.utils.serialize import sanitize_text
from amplifier_kit.concerns import Concern, Scope
from amplifier_kit.mounting import find_mounted
from amplifier_kit.tools.effects import EXECUTE, NETWORK, effects_of
from amplifier_kit.tools.permission_levels import PermissionLevel, is_level

from .commands import BASH, command_of, is_critical

Source = Literal["rule", "remembered", "provider", "timeout", "error", "config", "level"]
RiskLevel = Literal["medium", "high", "critical"]

LEVEL = "permission_level"
"""The key under which a session inside another one says at which level it works."""

_MAPPINGS = (dict, Mapping)  # a dict is recognized without asking the abstract class


class GuardedCall(NamedTuple):
    """A tool call as `tool:pre` announces it; `identity` is the tool's own name, by whatever name it is mounted.

    `effects` is what this call of the tool can do. `concerns` is what it touches and is asked about by name;
    `of_concern` stands for one that comes up while a tool runs. A call that is not `is_risky` would need no approval
    without them. `level` is the permission level that counts for it; `is_let_pass` says that it is wide enough.
    """

    tool_name: str
    tool_input: Mapping[str, Any]
    is_well_formed: bool
    identity: str
    effects: frozenset[str]
    tool: Any = None
    tool_call_id: str | None = None
    session_id: str | None = None
    concerns: tuple[Concern, ...] = ()
    is_concern: bool = False
    is_risky: bool = True
    level: PermissionLevel | None = None
    is_let_pass: bool = False

    @classmethod
    def of_concern(cls, concern: Concern, tool_name: str) -> Self:
        is_url = concern.kind == "host" and concern.detail
        shown = {concern.kind: concern.subject, **({"detail": concern.detail} if is_url else {})}
        effects = effects_of(None, tool_name)
        return cls(tool_name, shown, True, tool_name, effects, concerns=(concern,), is_concern=True)

    @classmethod
    def read(cls, data: Any, coordinator: Any = None) -> Self:
        """Raises `ValueError` for an event that does not say which tool is called."""
        tool_name = data.get("tool_name") if isinstance(data, _MAPPINGS) else None
        if not tool_name or not isinstance(tool_name, str):
            raise ValueError("the event does not name a tool")
        given = data.get("tool_input")
        tool_input: Mapping[str, Any] = given if isinstance(given, _MAPPINGS) else {}
        tool = data.get("tool_obj") or _find_tool(tool_name, coordinator)
        identity = _text(getattr(tool, "name", None)) or tool_name
        return cls(
            tool_name,
            tool_input,
            tool_input is given and (identity != BASH or isinstance(tool_input.get("command"), str)),
            identity,
            effects_of(tool, identity, tool_input),
            tool,
            _text(data.get("tool_call_id")),
            _text(data.get("session_id")),
            level=data[LEVEL] if is_level(data.get(LEVEL)) else None,
        )

    @property
    def command(self) -> str:
        return command_of(self.tool_input)

    @property
    def action(self) -> str:
        if self.is_concern:
            concern = self.concerns[0]
            return f"{self.tool_name}: {'reach' if concern.kind == 'host' else 'change'} {concern.subject}"
        return f"Execute: {self.command}" if self.identity == BASH else f"Execute {self.tool_name}"

    @property
    def risk_level(self) -> RiskLevel:
        if is_critical(self.command):
            return "critical"
        return "high" if self.identity == BASH else "medium"

    @property
    def defaults(self) -> dict[str, Any]:
        """What the tool takes for fields that are not given; a text is shown and counted even so."""
        schema = getattr(self.tool, "input_schema", None)
        properties = schema.get("properties") if isinstance(schema, _MAPPINGS) else None
        if not isinstance(properties, _MAPPINGS):
            return {}
        described = {name: field for name, field in properties.items() if isinstance(field, _MAPPINGS)}
        defaults = {name: field["default"] for name, field in described.items() if "default" in field}
        return {name: value for name, value in defaults.items() if isinstance(value, bool | int | float | None)}

    @property
    def scope(self) -> Scope | None:
        """The later calls for which an "always" stands."""
        return scope_of(self.identity, self.tool_input, self.effects, self.defaults)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision on a call, why, and who took it."""

    approved: bool
    reason: str
    source: Source
    remember: bool = False

    @classmethod
    def of(cls, response: Any) -> Self:
        """Return a provider's answer as a verdict; raises `TypeError` unless it is an `ApprovalResponse`."""
        if not isinstance(response, ApprovalResponse) or not isinstance(response.approved, bool):
            raise TypeError(f"the answer is a {type(response).__name__} without a clear yes or no")
        reason = sanitize_text(response.reason) if isinstance(response.reason, str) else ""
        default = "User approved" if response.approved else "User denied approval"
        return cls(response.approved, reason or default, "provider", response.remember is True)

    @classmethod
    def failed(cls, error: BaseException) -> Self:
        """Return the denial that an error amounts to."""
        return cls(False, f"Approval system error: {_described(error)}", "error")

    @property
    def response(self) -> ApprovalResponse:
        return ApprovalResponse(approved=self.approved, reason=self.reason, remember=self.remember)


def _described(error: BaseException) -> str:
    try:
        text = sanitize_text(str(error))
    except Exception:  # noqa: BLE001 - an error that cannot even be printed is still a denial
        text = ""
    return text or type(error).__name__


def _find_tool(tool_name: str, coordinator: Any) -> Any:
    tools = find_mounted(coordinator, "tools")
    return tools.get(tool_name) if isinstance(tools, Mapping) else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


# What an "always" stands for: families of commands that are known to be harmless, else the very same call.
#
# A family is a program, or a program with its subcommand, and the flags with which it neither runs a program of the
# caller's choice nor writes where it likes nor reaches out. A command belongs to a family if each of its other
# words is one of those flags, or a plain word that leads nowhere outside of the working directory. All others are
# remembered by their exact text: interpreters, wrappers, `git config`, `git -c`, package managers, build runners,
# programs that talk to the network, and whatever is not listed.


_FILE_TOOLS = {"write_file": "write", "edit_file": "edit"}
_WITHOUT_WEIGHT = frozenset({"command", "timeout", "description"})  # fields that do not change what a command does

_SHOWING = "-p --patch --stat --shortstat --numstat --name-only --name-status --oneline --graph --all --decorate -w -U"
_LISTING = "--color --color= --no-color -n -<n> --format= --pretty= --abbrev-commit --since= --until= --author= --grep="
_GREP = "-r -n -i -l -c -E -F -w -v -o -h -H -R -q -s -x -A -B -C -<n> --include= --exclude= --exclude-dir= --color="

_FAMILIES: dict[str, str] = {
    "basename": "",
    "cat": "-n -b -A -E -s",
    "cmp": "-s -l -b",
    "cut": "-d -f -c -b -s --complement",
    "df": "-h -k -m -T -i",
    "diff": "-u -r -q -N -w -b -B -i -y -U --brief --unified= --recursive --color=",
    "dirname": "",
    "du": "-h -s -a -c -d -k -m --max-depth= --apparent-size",
    "echo": "-n -e -E",
    "file": "-b -i -L",
    "git add": "-A --all -u --update -v --verbose -n --dry-run -N --intent-to-add",
    "git blame": "-w -L -C -M -l -s -e --since=",
    "git branch": "-a --all -r --remotes -v -vv --list --show-current --contains --merged --no-merged",
    "git checkout -b": "",
    "git commit": "-m --message= -a --all -q --quiet -v --verbose -s --signoff --allow-empty",
    "git describe": "--tags --always --dirty --long --abbrev=",
    "git diff": f"{_SHOWING} {_LISTING} --cached --staged --check --word-diff --exit-code --quiet",
    "git log": f"{_SHOWING} {_LISTING} --follow --merges --no-merges --reverse -S -G --first-parent",
    "git ls-files": "-m -o -c -d -s --others --cached --modified --deleted --exclude-standard",
    "git rev-parse": "--show-toplevel --abbrev-ref --short --verify --git-dir --is-inside-work-tree",
    "git shortlog": f"-s -n -e {_LISTING}",
    "git show": f"{_SHOWING} {_LISTING}",
    "git status": "-s --short -b --branch --porcelain --porcelain= -u -uno --ignored --long -v",
    "git switch": "-c --create",
    "grep": _GREP,
    "head": "-n -c -q -v -<n>",
    "ls": "-l -a -A -h -R -t -r -S -1 -d -F -i --color --color= --all --recursive",
    "mkdir": "-p -v --parents",
    "mypy": "--strict --no-error-summary --pretty --show-error-codes",
    "nl": "-b -n -w",
    "pwd": "-P -L",
    "pytest": (
        "-q -qq -v -vv -vvv -x -s -l -k -m -n -ra -rA -rf -rs -h --lf --ff --last-failed --failed-first --sw --stepwise"
        " --co --collect-only --exitfirst --quiet --verbose --maxfail= --tb= --durations= --no-header --no-summary"
        " --color= --markers --fixtures --version"
    ),
    "realpath": "",
    "ruff check": "--select= --ignore= --statistics --quiet -q",
    "sha256sum": "",
    "stat": "-c -f -L",
    "tail": "-n -c -q -v -<n>",
    "touch": "",
    "tree": "-L -a -d -I --noreport",
    "wc": "-l -w -c -m",
    "which": "-a",
}
_LONGEST_NAME = max(len(name.split()) for name in _FAMILIES)

_UNQUOTED = re.compile(r"[\w@%+,./:=^\[\]~-]+")
_WORD = re.compile(rf"(?:{_UNQUOTED.pattern}|'[^'\x00-\x09\x0b-\x1f\x7f]*'|\"[^\"$`\\\x00-\x09\x0b-\x1f\x7f]*\")+")
_PIECE = re.compile(rf"({_UNQUOTED.pattern})|'([^']*)'|\"([^\"]*)\"")
_NUMBER = re.compile(r"-\d+")
_SHORT = re.compile(r"-[A-Za-z]{2,}")
_ELSEWHERE = re.compile(r"[/~]|(?:.*/)?\.\.(?:/|$)|.*(?:[=:]~|\.\[)|[^/]*://|[^/]*@[^/]*:", re.DOTALL)


def scope_of(
    identity: str, tool_input: Mapping[str, Any], effects: frozenset[str], defaults: Mapping[str, Any]
) -> Scope | None:
    """Return for which later calls an "always" to this one stands; None for none.

    Files go by their directory, harmless commands by their family, tools that neither execute nor reach out by their
    name; of everything else, only the very same call is alike.
    """
    given = {name: value for name, value in tool_input.items() if name not in defaults or defaults[name] != value}
    family = None
    if identity == BASH:
        family = family_of(command_of(tool_input)) if given.keys() <= _WITHOUT_WEIGHT else None
    elif identity in _FILE_TOOLS:
        directory = _directory(tool_input)
        return Scope(identity, f"{_FILE_TOOLS[identity]} files in {directory}") if directory else None
    elif effects.isdisjoint({EXECUTE, NETWORK}) and identity.isprintable():
        family = f"every call of {identity}"
    return _exactly(identity, given) if family is None else Scope(identity, family)


def family_of(command: str) -> str | None:
    """Return the family that a command belongs to, such as `pytest …`; None for one that is like no other."""
    words = plain_words(command)
    if words is None:
        return None
    for length in range(min(_LONGEST_NAME, len(words)), 0, -1):
        name = " ".join(words[:length])
        if name in _FAMILIES and all(" " not in word for word in words[:length]):
            flags = _FAMILIES[name].split()
            return f"{name} …" if all(_is_harmless(word, flags) for word in words[length:]) else None
    return None


def plain_words(command: str) -> list[str] | None:
    """Return the words of a command; None where a shell would do more with one than take it as it stands."""
    words, position, text = [], 0, command.strip(" \t\n")
    while position < len(text):
        match = _WORD.match(text, position)
        if match is None or (match.end() < len(text) and text[match.end()] not in " \t"):
            return None
        word = ""
        for unquoted, *quoted in _PIECE.findall(match.group()):
            if not word and unquoted.startswith(("~", "[")):  # a home directory, or names of files, perhaps flags
                return None
            word += unquoted + "".join(quoted)
        words.append(word)
        position = match.end()
        while position < len(text) and text[position] in " \t":
            position += 1
    return words or None


def _is_harmless(word: str, flags: list[str]) -> bool:
    if not word.startswith("-"):
        return _ELSEWHERE.match(word) is None
    name, equals, value = word.partition("=")
    if equals and f"{name}=" in flags:
        return _ELSEWHERE.match(value) is None
    if word in flags or (_NUMBER.fullmatch(word) and "-<n>" in flags):
        return True
    return _SHORT.fullmatch(word) is not None and all(f"-{letter}" in flags for letter in word[1:])


def _directory(tool_input: Mapping[str, Any]) -> str | None:
    path = next((tool_input[key] for key in ("file_path", "path") if tool_input.get(key)), None)
    if not isinstance(path, str) or not path.isprintable():
        return None
    directory = os.path.dirname(os.path.normpath(path))  # noqa: PTH120 - of the text; no file is looked at
    return f"{directory.rstrip('/')}/" if directory else "./"


def _exactly(identity: str, given: Mapping[str, Any]) -> Scope:
    if given.keys() - _WITHOUT_WEIGHT == set() and isinstance(given.get("command"), str) and given["command"]:
        return Scope(identity, given["command"], is_exact=True)
    return Scope(identity, json.dumps(given, sort_keys=True, ensure_ascii=False, default=repr), is_exact=True)
