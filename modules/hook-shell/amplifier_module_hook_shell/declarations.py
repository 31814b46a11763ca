"""What is declared: the hooks of `hooks.json` and of Claude's settings, and whether one means an event."""

import hashlib
import json
import logging
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Origin = Literal["user", "project", "configuration"]
Kind = Literal["command", "prompt", "broken"]

GUARD_EVENTS = frozenset({"PreToolUse", "PermissionRequest"})

_CLAUDE_NAMES: Mapping[str, tuple[str, ...]] = {
    "bash": ("Bash",),
    "read_file": ("Read",),
    "write_file": ("Write",),
    "edit_file": ("Edit", "MultiEdit"),
    "apply_patch": ("Edit", "MultiEdit", "apply_patch"),
    "grep": ("Grep",),
    "glob": ("Glob",),
    "web_fetch": ("WebFetch",),
    "web_search": ("WebSearch",),
    "delegate": ("Task",),
    "task": ("Task",),
    "todo": ("TodoWrite",),
    "load_skill": ("Skill",),
}
_MCP = "mcp_"
_NOT_CODE = (".log", ".jsonl", ".pyc")
_MOST_BYTES = 1_048_576
_MOST_FILES = 5_000

logger = logging.getLogger(__name__)


def claude_name(tool_name: str) -> str:
    """Return how Claude calls a tool of ours, else the name itself."""
    return _CLAUDE_NAMES.get(tool_name, (tool_name,))[0]


@dataclass(frozen=True, slots=True)
class Place:
    """Where hooks are declared. What lies in its folders runs only as long as it is what it was when it was read."""

    origin: Origin
    folder: Path
    contents: Mapping[Path, str] = field(default_factory=dict)

    @classmethod
    def read(cls, origin: Origin, folder: Path, *files: Path) -> "Place":
        """Return a place with all that is in its folder, and further files."""
        return cls(origin, folder, {file: _digest(file) for file in (*_files(folder), *files)})

    def changed(self) -> list[Path]:
        """Return the files that are not what they were."""
        return [file for file, digest in self.contents.items() if _digest(file) != digest]


@dataclass(frozen=True, slots=True)
class Action:
    """One hook: a command, a question for a model, or a declaration that cannot be read."""

    kind: Kind
    text: str
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class Group:
    """The hooks that one matcher has for an event."""

    event: str
    matcher: str
    actions: tuple[Action, ...]
    place: Place
    is_parallel: bool = False

    def matches(self, subject: str | None) -> bool:
        """True if the matcher means the subject of an event: a tool by any of its names, a trigger, an agent."""
        if subject is None or self.matcher in ("", "*"):
            return True
        pairs = [(self.matcher, name) for name in (subject, *_CLAUDE_NAMES.get(subject, ()))]
        if subject.startswith(_MCP):
            pairs.append((self.matcher.replace("__", "_"), subject.replace("__", "_")))
        return any(_matches(pattern, name) for pattern, name in pairs)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.fullmatch(pattern, name, re.IGNORECASE) is not None
    except re.error:
        return pattern.casefold() == name.casefold()


def read_places(
    home: Path,
    project: Path,
    *,
    with_project: bool,
    with_claude: bool,
    with_projects_claude: bool,
    folders: list[Path],
) -> Iterator[Group]:
    """Yield what is declared: by the person, then by the project, then in folders of the configuration."""
    yield from _folder("user", home / ".amplifier/hooks")
    if with_claude:
        yield from _claude("user", home / ".claude", "settings.json")
    if with_project:
        yield from _folder("project", project / ".amplifier/hooks")
        if with_projects_claude:
            yield from _claude("project", project / ".claude", "settings.json", "settings.local.json")
    for folder in folders:
        yield from _folder("configuration", folder)


def _folder(origin: Origin, folder: Path) -> Iterator[Group]:
    files = [file for file in (folder / "hooks.json", *sorted(folder.glob("*/hooks.json"))) if file.is_file()]
    if files:
        place = Place.read(origin, folder)
        for file in files:
            yield from _file(file, place)


def _claude(origin: Origin, folder: Path, *names: str) -> Iterator[Group]:
    files = [folder / name for name in names if (folder / name).is_file()]
    if files:
        place = Place.read(origin, folder / "hooks", *files)
        for file in files:
            yield from _file(file, place)


def _file(file: Path, place: Place) -> Iterator[Group]:
    try:
        with file.open("rb") as opened:
            declared = json.loads(opened.read(_MOST_BYTES))
        hooks = declared.get("hooks", {}) if isinstance(declared, dict) else None
    except (OSError, ValueError, RecursionError) as error:
        logger.warning("hook-shell: %s cannot be read: %s", file, error)
        hooks = None
    yield from read_groups(hooks, place, file)


def read_groups(hooks: Any, place: Place, where: object) -> Iterator[Group]:
    """Yield the groups of a section `hooks`; what cannot be read stands for a guard that cannot run."""
    broken = Action("broken", f"{where} does not declare hooks that can be read")
    if not isinstance(hooks, Mapping):
        yield Group("PreToolUse", "", (broken,), place)
        return
    for event, groups in hooks.items():
        for group in groups if isinstance(groups, list) else [None]:
            if not isinstance(group, Mapping) or not isinstance(group.get("hooks"), list):
                yield Group(str(event), "", (broken,), place)
                continue
            matcher = group.get("matcher")
            actions = tuple(_action(each) or broken for each in group["hooks"])
            pattern = matcher if isinstance(matcher, str) else ""
            yield Group(str(event), pattern, actions, place, group.get("parallel") is True)


def _action(declared: Any) -> Action | None:
    if not isinstance(declared, Mapping):
        return None
    kind: Kind = "prompt" if declared.get("type") == "prompt" else "command"
    text, timeout = declared.get(kind), declared.get("timeout")
    if declared.get("type", "command") != kind or not isinstance(text, str) or not text.strip():
        return None
    is_number = isinstance(timeout, int | float) and not isinstance(timeout, bool) and timeout > 0
    return Action(kind, text, float(timeout) if is_number and timeout is not None else None)


def of_skill(hooks: Any, folder: Path, origin: Origin) -> Iterator[Group]:
    """Yield the hooks of a skill; commands that begin with `./` or `../` are files of it."""
    section = hooks.get("hooks", hooks) if isinstance(hooks, Mapping) else hooks
    for group in read_groups(section, Place.read(origin, folder), folder):
        actions = tuple(_in_skill(action, folder) for action in group.actions)
        yield Group(group.event, group.matcher, actions, group.place, group.is_parallel)


def _in_skill(action: Action, folder: Path) -> Action:
    program, blank, rest = action.text.partition(" ")
    if action.kind != "command" or not program.startswith(("./", "../")):
        return action
    path = shlex.quote(os.path.normpath(folder / program))
    return Action("command", f"{path}{blank}{rest}", action.timeout_s)


def _files(folder: Path) -> Iterator[Path]:
    count = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(each for each in folders if each != "__pycache__")
        for name in sorted(files):
            if not name.endswith(_NOT_CODE) and count < _MOST_FILES:
                count += 1
                yield Path(parent) / name


def _digest(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except OSError as error:
        return f"unreadable: {error.strerror}"
