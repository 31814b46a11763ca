"""Rules that answer for a person: commands that are always fine, commands that never are."""

import logging
import os
import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from .commands import BASH, command_of, is_simple, segments, trimmed

logger = logging.getLogger(__name__)

Action = Literal["auto_approve", "auto_deny"]

DEFAULT_RULES: list[dict[str, str]] = [
    {"pattern": "ls", "action": "auto_approve", "description": "list the current directory"},
    {"pattern": "ls *", "action": "auto_approve", "description": "list a directory"},
    {"pattern": "pwd", "action": "auto_approve", "description": "show the current directory"},
    {"pattern": "echo", "action": "auto_approve", "description": "print nothing"},
    {"pattern": "echo *", "action": "auto_approve", "description": "print text"},
]

# Case is ignored for plain letters only: other alphabets have letters that fold to these, and name other programs.
_LOWER = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


@dataclass(frozen=True, slots=True)
class Rule:
    """What to do when a tool is given something that looks like `pattern`, in which only `*` is special."""

    pattern: str
    action: Action
    tool: str = BASH

    @classmethod
    def parse(cls, raw: Any) -> Self | None:
        """Return the rule, None (and an error in the log) if it is not one."""
        match raw:
            case {"pattern": str(pattern), "action": ("auto_approve" | "auto_deny") as action} if pattern.strip():
                tool = raw.get("tool")
                if tool is None or (isinstance(tool, str) and tool):
                    return cls(pattern, action, tool or BASH)
        logger.error(
            "hooks-approval: the rule %r is skipped; a rule has a pattern and an action, auto_approve or auto_deny", raw
        )
        return None

    def denies(self, text: str) -> bool:
        """Say whether the text, or a part of it between separators, is what the rule denies."""
        pattern = _folded(self.pattern)
        return self.action == "auto_deny" and any(_matches(pattern, _folded(part)) for part in segments(text))

    def approves_file(self, inner: str) -> bool:
        """Say whether the rule approves a file of the working directory, written `./src/app.py`; `./*` means any."""
        return self.action == "auto_approve" and self.pattern.startswith("./") and _matches(self.pattern, inner)

    def approves(self, text: str) -> bool:
        """Say whether the text is a simple command that the rule approves."""
        if self.action != "auto_approve" or "*" in self.pattern.split()[0] or not is_simple(text):
            return False
        return _matches(self.pattern.strip().translate(_LOWER), trimmed(text).translate(_LOWER))


def check_auto_action(
    rules: Iterable[Any], tool_name: str, arguments: Any, *, working_dir: Path | None = None
) -> Action | None:
    """Return what the rules say about a call: denials come before approvals, None is for a person to decide."""
    parsed = (rule if isinstance(rule, Rule) else Rule.parse(rule) for rule in rules)
    concerned = [rule for rule in parsed if rule is not None and rule.tool == tool_name]
    if not concerned:
        return None
    given = arguments if isinstance(arguments, Mapping) else {}
    text, inner = _subject(tool_name, given), _inner_path(tool_name, given, working_dir)
    if any(rule.denies(text) or (inner and rule.denies(inner)) for rule in concerned):
        return "auto_deny"
    is_fine = any(rule.approves(text) or (inner and rule.approves_file(inner)) for rule in concerned)
    return "auto_approve" if is_fine else None


def _inner_path(tool_name: str, arguments: Mapping[str, Any], working_dir: Path | None) -> str:
    """Return the file that a call names, from the working directory on; empty for one that lies elsewhere."""
    path = _path_of(arguments)
    if working_dir is None or not path or tool_name == BASH or command_of(arguments) or path.startswith(("@", "~")):
        return ""
    base = os.path.realpath(working_dir)
    try:
        real = os.path.realpath(os.path.join(base, path))  # noqa: PTH118 - a text that may be no path
    except ValueError:
        return ""
    return f"./{os.path.relpath(real, base)}" if real.startswith(base.rstrip(os.sep) + os.sep) else ""


def _path_of(arguments: Mapping[str, Any]) -> str:
    return next((arguments[key] for key in ("file_path", "path") if isinstance(arguments.get(key), str)), "")


def _subject(tool_name: str, arguments: Mapping[str, Any]) -> str:
    """Return the text that rules look at: the command, for other tools else the path."""
    command = command_of(arguments)
    path = _path_of(arguments)
    return command if command or tool_name == BASH or not path else os.path.normpath(path)


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())


def _matches(pattern: str, text: str) -> bool:
    """Say whether the whole text matches; in linear time, whatever the pattern."""
    first, *others = pattern.split("*")
    if not others:
        return text == first
    *middle, last = others
    position, end = len(first), len(text) - len(last)
    if position > end or not (text.startswith(first) and text.endswith(last)):
        return False
    for piece in middle:
        found = text.find(piece, position, end)
        if found < 0:
            return False
        position = found + len(piece)
    return True
