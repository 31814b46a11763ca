"""The modes that a bundle brings in `modes/`: what is wrong with their files, seen without running anything."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_foundation.exceptions import BundleLoadError

from .files import read_document

if TYPE_CHECKING:
    from .model import Bundle

_FOLDER = "modes"
_TOOL_LISTS = ("safe", "warn", "confirm", "block")
_ACTIONS = ("block", "allow")
_SHORTCUT = re.compile(r"[a-z][a-z0-9_-]*")
_FLAGS = ("allow_clear", "advertised")


def find_mode_faults(bundle: Bundle) -> list[str]:
    """Return a sentence for everything that is wrong with the modes of a bundle and of those it is composed of."""
    places = (bundle.base_path, *bundle.source_base_paths.values())
    return [fault for place in dict.fromkeys(each for each in places if each) for fault in _faults_in(place)]


def _faults_in(place: Path) -> Iterator[str]:
    taken: dict[str, Path] = {}
    for file in sorted((place / _FOLDER).glob("*.md")):
        try:
            document = read_document(file)
        except BundleLoadError as error:
            yield error.message
            continue
        if "mode" not in document.data:
            continue  # another text that lies there
        mode = document.data["mode"]
        if not isinstance(mode, Mapping):
            yield f"{file}: mode must be a mapping, it is {_kind(mode)}"
            continue
        yield from (f"{file}: {fault}" for fault in _faults_of(mode))
        name = str(mode.get("name") or file.stem)
        if (other := taken.setdefault(name.lower(), file)) is not file:
            yield f"{file}: mode {name!r} is that of {other.name}, too; a name means one mode"


def _faults_of(mode: Mapping[str, Any]) -> Iterator[str]:
    for key in ("name", "description"):
        if mode.get(key) is not None and not isinstance(mode[key], str):
            yield f"mode.{key} must be text, it is {_kind(mode[key])}"
    if (action := mode.get("default_action", "block")) not in _ACTIONS:
        yield f"mode.default_action must be one of {', '.join(_ACTIONS)}, it is {action!r}"
    for key in _FLAGS:
        if not isinstance(mode.get(key, True), bool):
            yield f"mode.{key} must be true or false, it is {mode[key]!r}"
    shortcut = mode.get("shortcut")
    if shortcut and not (isinstance(shortcut, str) and _SHORTCUT.fullmatch(shortcut.lower())):
        yield f"mode.shortcut must be a word of letters, digits, _ and -, it is {shortcut!r}"
    transitions = mode.get("allowed_transitions")
    if transitions is not None and not _is_list_of_text(transitions):
        yield f"mode.allowed_transitions must be a list of names, it is {_kind(transitions)}"
    yield from _faults_of_tools(mode.get("tools"))


def _faults_of_tools(tools: Any) -> Iterator[str]:
    if tools is None:
        return
    if not isinstance(tools, Mapping):
        yield f"mode.tools must be a mapping of {', '.join(_TOOL_LISTS)}, it is {_kind(tools)}"
        return
    placed: dict[str, str] = {}
    for key in tools:
        if key not in _TOOL_LISTS:
            yield f"mode.tools.{key} is not known; there are {', '.join(_TOOL_LISTS)}"
        elif tools[key] is not None and not _is_list_of_text(tools[key]):
            yield f"mode.tools.{key} must be a list of names of tools, it is {_kind(tools[key])}"
        else:
            for name in tools[key] or ():
                if (other := placed.setdefault(name, key)) != key:
                    yield f"mode.tools lists {name!r} as {other} and as {key}"


def _is_list_of_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _kind(value: Any) -> str:
    return f"a {type(value).__name__}"
