"""A module of one's own, from templates: a package that the validator passes, and tests that pass."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Literal, get_args

from amplifier_core.packages import bare_name, package_name, type_from_prefix

from .failures import UsageError

ModuleType = Literal["tool", "hook", "provider", "orchestrator", "context"]
MODULE_TYPES: tuple[ModuleType, ...] = get_args(ModuleType)

_PREFIXES = {"tool": "tool", "hook": "hooks", "provider": "provider", "orchestrator": "loop", "context": "context"}
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_DESCRIPTIONS = {
    "tool": "A tool that returns a text.",
    "hook": "A hook that refuses tools which are switched off.",
    "provider": "A provider that answers with what it was asked.",
    "orchestrator": "An orchestrator that runs turns as the kit does.",
    "context": "A context manager that keeps every message.",
}
_USAGE = {
    "tool": "tools:\n- module: {id}\n  source: {path}",
    "hook": "hooks:\n- module: {id}\n  source: {path}",
    "provider": "providers:\n- module: {id}\n  source: {path}",
    "orchestrator": "session:\n  orchestrator:\n    module: {id}\n    source: {path}",
    "context": "session:\n  context:\n    module: {id}\n    source: {path}",
}


def find_module_type(name: str, given: ModuleType | None) -> ModuleType:
    """Return the type of a new module: the given one, else the one that its name begins with.

    Raises:
        UsageError: neither says it, or they disagree.
    """
    found = next((each for each in MODULE_TYPES if each == type_from_prefix(name)), None)
    if given is None and found is None:
        raise UsageError(
            f"{name!r} does not say what type of module it is", hint=f"add --type: {', '.join(MODULE_TYPES)}"
        )
    if given is not None and found is not None and given != found:
        raise UsageError(f"{name!r} is the name of a {found}, not of a {given}", hint="choose another name or type")
    return given or found or "tool"


def module_id_for(name: str, module_type: ModuleType) -> str:
    """Return the module ID for a name: the type comes first, so that `my-tool` becomes `tool-my`.

    Raises:
        UsageError: a module cannot be called so.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"a module cannot be called {name!r}", hint="use lower-case letters, digits and hyphens, as in word-count"
        )
    if type_from_prefix(name) == module_type:
        return name
    return f"{_PREFIXES[module_type]}-{name.removesuffix(f'-{module_type}')}"


def write_module(folder: Path, module_id: str, module_type: ModuleType) -> tuple[Path, ...]:
    """Write a module into a folder that is new or empty, and return its files.

    Raises:
        UsageError: there is something in the folder.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already", hint="choose another name, or another place with --dir")
    package = package_name(module_id)
    bare = bare_name(module_id)
    words = {
        "module_id": module_id,
        "package": package,
        "name": bare.replace("-", "_"),
        "Name": "".join(word.capitalize() for word in bare.split("-")),
        "Title": bare.replace("-", " ").capitalize(),
        "description": _DESCRIPTIONS[module_type],
        "usage": _USAGE[module_type].format(id=module_id, path=folder.absolute()),
    }
    texts = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        f"{package}/__init__.py": f"{module_type}.py",
        f"tests/test_{words['name']}.py": f"test_{module_type}.py",
    }
    for name, template in texts.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_template(template).substitute(words), encoding="utf-8")
    return tuple(folder / name for name in texts)


def _template(name: str) -> Template:
    return Template((files(__package__) / "module_templates" / f"{name}.txt").read_text(encoding="utf-8"))
