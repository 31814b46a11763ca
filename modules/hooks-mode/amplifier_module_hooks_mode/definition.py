"""One mode, as its file describes it: a mapping `mode` in the front matter, and guidance below."""

import difflib
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self

import yaml

from amplifier_kit.tools.permission_levels import PermissionLevel, is_level

logger = logging.getLogger(__name__)

DefaultAction = Literal["block", "allow"]
Answer = Literal["continue", "confirm", "warn", "block"]

_SHORTCUT = re.compile(r"[a-z][a-z0-9_-]*")
_FRONT = re.compile(r"\A---[ \t]*\r?\n(.*?)(?:\r?\n)?^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_OF_ARGUMENT = re.compile(r"([\w.*?\[\]-]+)\((.*)\)", re.DOTALL)
_NEAR = 2 / 3


@dataclass(frozen=True)
class ModeDefinition:
    """A mode: which tools it allows, what it says to the model, and what it contributes.

    Entries of the lists are names of tools, patterns of names (`mcp_*`), or a name with a pattern of the command
    (`bash(git diff*)`).
    """

    name: str
    description: str = ""
    source: str = ""
    shortcut: str | None = None
    context: str = ""
    safe_tools: tuple[str, ...] = ()
    warn_tools: tuple[str, ...] = ()
    confirm_tools: tuple[str, ...] = ()
    block_tools: tuple[str, ...] = ()
    default_action: DefaultAction = "block"
    allowed_transitions: tuple[str, ...] | None = None
    allow_clear: bool = True
    advertised: bool = True
    permissions: PermissionLevel | None = None
    contributes: Mapping[str, Any] = field(default_factory=dict)
    stem: str = ""

    @property
    def names(self) -> frozenset[str]:
        """What it can be called by."""
        return frozenset(filter(None, (self.name, self.stem, self.shortcut)))

    def judge(self, names: Iterable[str], tool_input: Any, infrastructure: Sequence[str]) -> tuple[Answer, str]:
        """Return what the mode says to a call of a tool that has these names, and which of its rules says so."""
        called = tuple(names)
        if any(name in infrastructure for name in called):
            return "continue", "infrastructure"
        command = tool_input.get("command") if isinstance(tool_input, Mapping) else None
        answers: tuple[tuple[Answer, tuple[str, ...]], ...] = (
            ("continue", self.safe_tools),
            ("block", self.block_tools),
            ("confirm", self.confirm_tools),
            ("warn", self.warn_tools),
        )
        for answer, entries in answers:
            if any(_covers(entry, called, command) for entry in entries):
                return answer, "block_list" if answer == "block" else answer
        return ("continue", "default_action") if self.default_action == "allow" else ("block", "default_action")

    def unknown_tools(self, mounted: Iterable[str]) -> dict[str, str | None]:
        """Return the names in its lists that no tool has, each with the nearest name that one has."""
        known = sorted(mounted)
        listed = (*self.safe_tools, *self.warn_tools, *self.confirm_tools, *self.block_tools)
        missing = [name for name in map(_tool_of, listed) if not any(fnmatchcase(each, name) for each in known)]
        return {name: next(iter(difflib.get_close_matches(name, known, 1, _NEAR)), None) for name in missing}

    def is_hollow(self, mounted: Iterable[str]) -> bool:
        """True for a mode that lists tools to be used, none of which is there."""
        usable = (*self.safe_tools, *self.warn_tools, *self.confirm_tools)
        known = tuple(mounted)
        return bool(usable) and not any(fnmatchcase(each, _tool_of(name)) for name in usable for each in known)

    def policy(self) -> dict[str, Any]:
        """What holds without the file: kept with the session, so that a mode outlives its definition."""
        return {key: value for key, value in asdict(self).items() if key not in ("context", "contributes", "source")}

    @classmethod
    def from_policy(cls, stored: Mapping[str, Any]) -> Self:
        known = {key: value for key, value in stored.items() if key in cls.__dataclass_fields__}
        lists = {key: tuple(value) for key, value in known.items() if isinstance(value, list)}
        return cls(**{**known, **lists, "source": "stored"})

    def summary(self) -> dict[str, Any]:
        """What events and results say of it."""
        return {
            "description": self.description,
            "default_action": self.default_action,
            "safe_tools": list(self.safe_tools),
            "warn_tools": list(self.warn_tools),
            "confirm_tools": list(self.confirm_tools),
            "block_tools": list(self.block_tools),
        }


def _tool_of(entry: str) -> str:
    match = _OF_ARGUMENT.fullmatch(entry)
    return match[1] if match else entry


def _covers(entry: str, names: Iterable[str], command: Any) -> bool:
    match = _OF_ARGUMENT.fullmatch(entry)
    pattern = match[1] if match else entry
    if not any(name == pattern or fnmatchcase(name, pattern) for name in names):
        return False
    if match is None:
        return True
    return isinstance(command, str) and _is_plain(command) and fnmatchcase(command.strip(), match[2])


def _is_plain(command: str) -> bool:
    """True for a command that is a single one: a pattern of its beginning says nothing of what comes behind a `;`."""
    return re.search(r"[;&|<>`$\n\r]", command) is None


def parse_mode_file(path: Path, source: str = "") -> ModeDefinition | None:
    """Return the mode that a file describes, None for a file that describes none."""
    try:
        text = path.read_text(encoding="utf-8-sig")
        front = _FRONT.match(text)
        data = yaml.safe_load(front[1]) if front else None
    except (OSError, UnicodeDecodeError) as error:
        logger.warning("hooks-mode: %s cannot be read: %s", path, error)
        return None
    except yaml.YAMLError as error:
        logger.warning("hooks-mode: %s has no readable front matter: %s", path, error)
        return None
    mode = data.get("mode") if isinstance(data, Mapping) else None
    if front is None or not isinstance(mode, Mapping):
        logger.debug("hooks-mode: %s is no mode", path)
        return None
    return _read(mode, text[front.end() :].strip(), path, source)


def _read(mode: Mapping[str, Any], body: str, path: Path, source: str) -> ModeDefinition:
    name = str(mode.get("name") or path.stem)
    tools = mode.get("tools")
    tools = tools if isinstance(tools, Mapping) else {}
    action = mode.get("default_action")
    if action not in (None, "block", "allow"):
        logger.warning("hooks-mode: %s: default_action is %r, block counts", path, action)
    level = mode.get("permissions")
    if level is not None and not is_level(level):
        logger.warning("hooks-mode: %s: there is no permission level %r; plan counts", path, level)
        level = "plan"
    transitions = mode.get("allowed_transitions")
    contributes = mode.get("contributes")
    return ModeDefinition(
        name=name,
        description=str(mode.get("description") or ""),
        source=source,
        shortcut=_shortcut(mode, name, path),
        context=body,
        safe_tools=_texts(tools.get("safe"), f"{path}: tools.safe"),
        warn_tools=_texts(tools.get("warn"), f"{path}: tools.warn"),
        confirm_tools=_texts(tools.get("confirm"), f"{path}: tools.confirm"),
        block_tools=_texts(tools.get("block"), f"{path}: tools.block"),
        default_action="allow" if action == "allow" else "block",
        allowed_transitions=None if transitions is None else _texts(transitions, f"{path}: allowed_transitions"),
        allow_clear=mode.get("allow_clear") is not False,
        advertised=mode.get("advertised") is not False,
        permissions=level,
        contributes=dict(contributes) if isinstance(contributes, Mapping) else {},
        stem=path.stem,
    )


def _shortcut(mode: Mapping[str, Any], name: str, path: Path) -> str | None:
    """Return the word that enters a mode as a command, None for a mode without one."""
    given = mode.get("shortcut", name)
    if given is True:
        logger.warning("hooks-mode: %s: shortcut is true, which is no word; its name counts", path)
        given = name
    if not given:
        return None
    word = str(given).lower()
    if _SHORTCUT.fullmatch(word):
        return word
    logger.debug("hooks-mode: %s: %r is no shortcut", path, given)
    return None


def _texts(value: Any, place: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    logger.warning("hooks-mode: %s is not a list of names and counts as empty", place)
    return ()
