"""What an "always" stands for: families of commands that are known to be harmless, else the very same call.

A family is a program, or a program with its subcommand, and the flags with which it neither runs a program of the
caller's choice nor writes where it likes nor reaches out. A command belongs to a family if each of its other words is
one of those flags, or a plain word that leads nowhere outside of the working directory. All others are remembered by
their exact text: interpreters, wrappers, `git config`, `git -c`, package managers, build runners, programs that talk to
the network, and whatever is not listed.
"""

import json
import os
import re
from collections.abc import Mapping
from typing import Any

from amplifier_kit.asked_call import Scope
from amplifier_kit.tools.effects import EXECUTE, NETWORK

from .commands import BASH, command_of

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
