"""What a permission level means for a call of a tool; `amplifier_system.permission_levels` has the levels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from amplifier_kit.mounting import find_capability
from amplifier_system.permission_levels import PermissionLevel, Permissions, is_level, narrowest

from .effects import EXECUTE, READ, WRITE

__all__ = [
    "PERMISSIONS",
    "PermissionLevel",
    "Permissions",
    "is_edit_inside",
    "is_level",
    "narrowest",
    "permissions_of",
    "refusal",
]

PERMISSIONS = "session.permissions"
"""The capability that knows the permission level of a session, a `Permissions`."""

_FILES = frozenset({READ, WRITE})
_PATH_KEYS = ("file_path", "path")
_DOES = {WRITE: "writes", EXECUTE: "executes commands"}


def is_edit_inside(tool: Any, tool_input: Mapping[str, Any], effects: Collection[str], working_dir: Path) -> bool:
    """True for a call of a tool that says of itself that it only reads and writes files, all in the working directory.

    A tool names the files of a call by `written_paths(input)`, else by the usual keys of its input.
    """
    if WRITE not in effects or not _FILES.issuperset(effects) or getattr(tool, "effects", None) is None:
        return False
    report = getattr(tool, "written_paths", None)
    paths = report(tool_input) if callable(report) else [tool_input[key] for key in _PATH_KEYS if tool_input.get(key)]
    return bool(paths) and all(isinstance(path, str) and _is_inside(path, working_dir) for path in paths)


def _is_inside(path: str, working_dir: Path) -> bool:
    try:
        return (working_dir / Path(path).expanduser()).resolve().is_relative_to(working_dir.resolve())
    except (OSError, ValueError, RuntimeError):
        return False


def permissions_of(coordinator: Any) -> Permissions | None:
    """The permission level of a session, which may change at any time; None where its host knows no levels."""
    found = find_capability(coordinator, PERMISSIONS)
    return found if isinstance(found, Permissions) else None


def refusal(level: PermissionLevel | None, effects: Collection[str], tool_name: str) -> str | None:
    """Why a call with these effects does not run at a level; None where it may."""
    if level != "plan":
        return None
    done = [words for effect, words in _DOES.items() if effect in effects]
    if not done:
        return None
    return (
        f"permission level plan: {tool_name} {' and '.join(done)}, and nothing is written or executed at this level."
        " Read what you need, then answer with a plan that the person can accept"
    )
