"""The code that is imported under a module's package name: where it is from, who uses it, and how it makes way.

Python keeps one module per name. When a session needs other code under that name (a new build, an updated bundle, an
installed module after one from a folder), the old code is unloaded as soon as no session uses it; until then the load
is refused: a session never runs code that it did not ask for.
"""

import gc
import importlib
import importlib.metadata
import logging
import os
import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec, PathFinder
from importlib.metadata import EntryPoint
from importlib.util import module_from_spec
from pathlib import Path
from threading import RLock
from types import ModuleType
from typing import Any, Protocol
from weakref import WeakKeyDictionary, WeakSet

from . import sys_path
from .exceptions import AmplifierError, ModulePathConflict
from .packages import ENTRY_POINT_GROUP, submodules
from .sys_path import held_entries

logger = logging.getLogger(__name__)

lock = RLock()
"""Held from the look at what is imported to the note that it is used: sessions start in several threads."""

_users: WeakSet["CodeUser"] = WeakSet()
_folders: WeakKeyDictionary[ModuleType, str] = WeakKeyDictionary()  # of packages that were loaded from a folder


class CodeUser(Protocol):
    """What loads modules for a session."""

    @property
    def title(self) -> str:
        """What it is called, for a person."""

    def uses(self, package: str) -> bool:
        """True if a module of the package is loaded and may still run."""


def add_user(user: CodeUser) -> None:
    """Note a user of modules: before code makes way, each user is asked whether it is still in use."""
    _users.add(user)


def note_folder(module: ModuleType, package: Path) -> None:
    """Note that a package was imported from a folder; `package` is the real directory, whatever links led there."""
    _folders[module] = str(package)


def make_way(module_id: str, package: Path) -> None:
    """See to it that the package in a real directory can be imported.

    Raises:
        ModulePathConflict: a session uses other code of that name.
    """
    name, wanted = package.name, os.path.realpath(package)
    for key in (name, *submodules(name)):
        module = sys.modules.get(key)
        if module is not None and not _is_from(module, wanted):
            _unload(module_id, name, str(package))
            return


def make_way_for_installed(module_id: str, name: str) -> bool:
    """See to it that what is installed under a package name can be imported; False when nothing is.

    Raises:
        ModulePathConflict: a session uses the code of a folder under that name.
    """
    module = sys.modules.get(name)
    if module is None or (module not in _folders and not _is_held(module)):
        return True
    spec = _find_installed(name)
    if spec is None or spec.origin is None:
        return False
    wanted = os.path.dirname(os.path.realpath(spec.origin))  # noqa: PTH120 - realpath() gives a text
    if not _is_from(module, wanted):
        _unload(module_id, name, str(Path(spec.origin).parent))
    return True


def import_installed(name: str) -> ModuleType:
    """Import a package from where it is installed, even if a dependency of some session brings one of that name."""
    held = sys_path.held_entries()
    if name in sys.modules or PathFinder.find_spec(name, [*held]) is None:
        return importlib.import_module(name)
    spec = _find_installed(name)
    if spec is None or spec.loader is None:
        return importlib.import_module(name)
    module = module_from_spec(spec)
    sys.modules[name] = module
    is_done = False
    try:
        spec.loader.exec_module(module)
        is_done = True
    finally:
        if not is_done:
            sys.modules.pop(name, None)
    return module


def _is_held(module: ModuleType) -> bool:
    """True for code from a directory that a session put on `sys.path`."""
    return _file_of(module).startswith(tuple(f"{entry}/" for entry in sys_path.held_entries()))


def _is_from(module: ModuleType, directory: str) -> bool:
    known = _folders.get(module)
    if known is not None:
        return os.path.realpath(known) == directory
    file = _file_of(module)
    return bool(file) and Path(os.path.realpath(file)).is_relative_to(directory)


def _unload(module_id: str, name: str, wanted: str) -> None:
    if _titles(name):
        gc.collect()  # a session that is no longer reachable counts until it is collected
    if titles := _titles(name):
        place = Path(_file_of(sys.modules.get(name))).parent
        verb = "uses" if len(titles) == 1 else "use"
        raise ModulePathConflict(
            f"Refusing to load '{module_id}' from {wanted}: it is already loaded from {place}, "
            f"and {' and '.join(titles)} still {verb} that code",
            hint="end that session first (`await session.cleanup()`), or run this one in another process",
        )
    _forget(name)
    _forget_what_was_left()
    importlib.invalidate_caches()


def _forget(name: str) -> None:
    for key in (name, *submodules(name)):
        sys.modules.pop(key, None)


def _forget_what_was_left() -> None:
    """Unload what came from import paths of the past: a dependency of the old code may be of another version now."""
    left = tuple(os.path.join(entry, "") for entry in sys_path.take_left_entries())  # noqa: PTH118 - compared as texts
    found = {key.partition(".")[0] for key, module in list(sys.modules.items()) if _file_of(module).startswith(left)}
    for name in sorted(found):
        files = [_file_of(sys.modules[key]) for key in (name, *submodules(name)) if key in sys.modules]
        if any(file.endswith(tuple(EXTENSION_SUFFIXES)) for file in files):  # these can be loaded once in a process
            logger.warning("%s stays as it was imported from %s until this process ends", name, files[0])
        elif not _titles(name):
            _forget(name)


def _file_of(module: object) -> str:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else ""


def _titles(name: str) -> list[str]:
    return sorted({user.title for user in _users if user.uses(name)})


def _find_installed(name: str) -> ModuleSpec | None:
    """Find what an import would load, in the folders that sessions put on `sys.path` only if it is nowhere else."""
    held = sys_path.held_entries()
    for path in ([entry for entry in sys.path if entry not in held], list(sys.path)):
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path if finder is PathFinder else None)
            if spec is not None:
                return spec
    return None


_read = importlib.metadata.entry_points
_cache: tuple[Any, list[EntryPoint]] = (None, [])


def entry_points() -> list[EntryPoint]:
    """Return the installed modules' entry points, the first of `sys.path` first.

    What sessions put on `sys.path`, folders of modules and their dependencies, is not installed: an entry point there
    could take the place of an installed module. Reading them all takes milliseconds, so the answer is kept for as long
    as the other directories and their modification times stay the same. A function that a test puts in the place of
    `importlib.metadata.entry_points` is asked every time.
    """
    global _cache
    if importlib.metadata.entry_points is not _read:
        return list(importlib.metadata.entry_points(group=ENTRY_POINT_GROUP))
    ours = held_entries()
    directories = [(entry, _modified(entry)) for entry in sys.path if entry not in ours]
    if _cache[0] != directories:
        _cache = (directories, _read_from([entry for entry, _ in directories]))
    return _cache[1]


def _read_from(directories: list[str]) -> list[EntryPoint]:
    found = (
        point
        for distribution in importlib.metadata.distributions(path=directories)
        for point in distribution.entry_points
        if point.group == ENTRY_POINT_GROUP
    )
    return list({(point.name, point.value): point for point in found}.values())


def _modified(entry: str) -> int:
    try:
        return os.stat(entry or ".").st_mtime_ns  # noqa: PTH116 - asked of every directory for every module
    except (OSError, ValueError):
        return 0


# Errors about a copy of a module, told with the words of those who wrote the module and the plan.
#
# A module source may say more than the folder: `reference`, what a person wrote to say where the module comes from,
# and `advise(error)`, which returns what to do about an error of an import, or None.


def tell_origin(error: AmplifierError, folder: Path, source: object) -> None:
    """Have an error name the module's reference instead of the folder with the copy, and give the source's advice."""
    reference, advise = getattr(source, "reference", None), getattr(source, "advise", None)
    hint = advise(error.__cause__) if callable(advise) and isinstance(error.__cause__, ImportError) else None
    message, hint = error.message, hint or error.hint
    if isinstance(reference, str) and reference:
        message, hint = retold(message, folder, reference), retold(hint, folder, reference)
    error.reword(message, hint=hint)


def retold(text: str, folder: Path, reference: str) -> str:
    """Return a text with `reference` in place of the folder; a file in it becomes `<file> of <reference>`."""
    places = sorted({str(folder), os.path.realpath(folder)}, key=len, reverse=True)
    pattern = f"(?:{'|'.join(map(re.escape, places))})(?:/(?P<file>[^\\s'\",;:]+))?"

    def tell(match: re.Match[str]) -> str:
        return f"{match['file']} of {reference}" if match["file"] else reference

    return re.sub(pattern, tell, text)
