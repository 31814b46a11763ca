"""Modules that are installed beside us: used as they are, never copied."""

from __future__ import annotations

import ast
import importlib.metadata
import logging
import os
import sys
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from threading import Lock

from amplifier_core import sys_path
from amplifier_core.exceptions import ModuleValidationError
from amplifier_core.imported_code import entry_points
from amplifier_core.packages import ENTRY_POINT_GROUP, folder_name, module_type_in, package_name, type_from_id
from amplifier_foundation.sources.local import find_package


@dataclass(frozen=True, slots=True)
class InstalledModule:
    """The package of an installed module, or its single file, and the version of what brought it."""

    path: Path
    version: str | None


class InstalledModules:
    """The modules that can be imported from some directories."""

    def __init__(self, entries: list[str]) -> None:
        self._entries = entries
        self._found: dict[tuple[str, str | None], InstalledModule | None] = {}
        self._found |= {(name, None): module for name, module in _by_entry_points(entries).items()}

    def find(self, module_id: str, package: str | None = None) -> InstalledModule | None:
        """Return a module, by its entry point, else by its package's name; `package` says which it must be."""
        key = (module_id, package)
        if key not in self._found:
            self._found[key] = _by_name(package or package_name(module_id), module_id, self._entries)
        return self._found[key]

    def nearest(self, module_id: str) -> str | None:
        """Return the installed module whose id is spelled most like one that is not."""
        import difflib  # only ever needed for a message

        known = [name for (name, package), found in self._found.items() if found is not None and package is None]
        return next(iter(difflib.get_close_matches(module_id, known, n=1, cutoff=0.7)), None)


_known: dict[tuple[tuple[str, int], ...], InstalledModules] = {}
_lock = Lock()


def installed_modules() -> InstalledModules:
    """Return the installed modules as they are now.

    What was found is remembered while the directories of installed packages are unchanged.
    """
    state = _installation()
    with _lock:  # those who ask meanwhile want the same
        if state not in _known:
            _known.clear()
            _known[state] = InstalledModules([entry for entry, _ in state])
        return _known[state]


def _installation() -> tuple[tuple[str, int], ...]:
    """Return where packages are imported from, and when that changed; the directories of builds do not count."""
    held = sys_path.held_entries()
    state = []
    for entry in dict.fromkeys(sys.path):
        if entry not in held:
            try:
                state.append((entry, os.stat(entry or ".").st_mtime_ns))  # noqa: PTH116 - asked for every look
            except OSError:
                continue
    return tuple(state)


def _by_entry_points(entries: list[str]) -> dict[str, InstalledModule]:
    found: dict[str, InstalledModule] = {}
    for distribution in importlib.metadata.distributions(path=entries):
        points = [point for point in distribution.entry_points if point.group == ENTRY_POINT_GROUP]
        version = distribution.version if points else None  # reading it takes milliseconds
        for point in points:
            path = _find_path(point.module, entries) if point.name not in found else None
            if path is not None:
                found[point.name] = InstalledModule(path, version)
    return found


def _by_name(name: str, module_id: str, entries: list[str]) -> InstalledModule | None:
    path = _find_path(name.replace("-", "_"), entries) or find_package(name)
    if path is None:
        return None
    for candidate in (name, folder_name(module_id)):
        found = next(iter(importlib.metadata.distributions(name=candidate, path=entries)), None)
        if found is not None:
            return InstalledModule(path, found.version)
    return InstalledModule(path, None)


def _find_path(module: str, entries: list[str]) -> Path | None:
    """Return a package's directory, or a module's file; nothing is imported, and what has been does not count."""
    package = module.partition(".")[0]
    spec = PathFinder.find_spec(package, entries) if package.isidentifier() else None
    if spec is None or spec.origin is None:
        return find_package(package)
    origin = Path(spec.origin).resolve()
    return origin.parent if spec.submodule_search_locations else origin


# What can be said about a module without importing it.


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModuleFacts:
    """A module as its files describe it; `path` is its package. `documentation` is the package's docstring."""

    module_id: str
    module_type: str
    version: str | None
    path: str
    documentation: str = ""

    @property
    def summary(self) -> str:
        """The first sentence of the documentation, without the module's own name."""
        first = " ".join(self.documentation.partition("\n\n")[0].split())
        return first.removeprefix(f"{self.module_id}:").strip()


def installed_facts() -> list[ModuleFacts]:
    """Return the modules that are installed here, by their entry points."""
    known = installed_modules()
    names = sorted({point.name for point in entry_points()})
    found = ((name, module) for name in names if (module := known.find(name)) is not None)
    listed = (find_facts(name, module.path, module.version) for name, module in found)
    return [facts for facts in listed if facts is not None]


def find_facts(module_id: str, path: Path, version: str | None) -> ModuleFacts | None:
    """Return the same as `read_facts`, but None for a module of an unknown type, which is logged and not listed."""
    try:
        return read_facts(module_id, path, version)
    except ModuleValidationError as error:
        logger.error("%s is not listed: %s", path, error.message)  # noqa: TRY400 - its own message says it all
        return None


def read_facts(module_id: str, path: Path, version: str | None) -> ModuleFacts:
    """Return what the package, or the file, at a path says about a module.

    Raises:
        ModuleValidationError: it declares an unknown type.
    """
    file = path / "__init__.py" if path.is_dir() else path
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ModuleFacts(module_id, type_from_id(module_id), version, str(path))
    module_type = module_type_in(tree, module_id, file)
    return ModuleFacts(module_id, module_type, version, str(path), ast.get_docstring(tree) or "")
