"""A module that was imported and passed the checks that need no instance."""

import importlib
import inspect
import logging
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple, Self
from weakref import WeakKeyDictionary

from .boundary import raised_as
from .coordinator import ModuleCoordinator
from .exceptions import ModuleImportError, ModuleLoadError, ModulePathConflict, ModuleValidationError, describe
from .imported_code import make_way, note_folder, tell_origin
from .mounting import Mounting
from .packages import TYPE_TO_MOUNT_POINT, find_package, import_module_from_path, module_type_of, package_name
from .validation.base import (
    CONTRACTS,
    ValidationCheck,
    ValidationResult,
    instance_checks,
    not_importable,
    static_checks,
)

logger = logging.getLogger(__name__)

ReadyCallback = Callable[[ModuleCoordinator], Awaitable[None]]

FROM_AN_IMPORT = (Exception, SystemExit)
"""What importing a module may raise: its code runs, and may even end the process."""

ONE_PLACE_HINT = "use one source for it everywhere, or run the sessions in separate processes"

# Files that an import only passes through: Python's import system and the kernel itself.
_MACHINERY = ("<frozen importlib", f"{Path(__file__).parent}{os.sep}", f"{Path(importlib.__file__).parent}{os.sep}")
_ENTRY_POINT_CHECKS = frozenset({"mount_exists", "mount_signature", "on_session_ready_async"})


# Which directory a path leads to just now, for one system call; a path's text stays the same when a link is moved.
DirectoryIdentity = tuple[int, int]
_NOWHERE: DirectoryIdentity = (0, 0)


@dataclass(slots=True)
class LoadedModule:
    """What the loader keeps of a module.

    `folder` is where a resolver or a local source had it, None when it is installed; only modules with a folder are
    held to the contract of their type once they have mounted.
    """

    module_id: str
    module_type: str
    mount: Callable[..., Awaitable[Any]]
    file: str
    on_session_ready: ReadyCallback | None = None
    checks: list[ValidationCheck] = field(default_factory=list)
    folder: Path | None = None
    source: object = None  # what the resolver said about the folder
    sys_path_entry: str | None = None
    mounted: int = 0
    package: str = ""  # the name that its code has in `sys.modules`
    identity: DirectoryIdentity = _NOWHERE  # of its folder

    def copy(self) -> "LoadedModule":
        """Return what another loader may keep: the same module, not mounted yet."""
        known = (self.module_id, self.module_type, self.mount, self.file, self.on_session_ready, self.checks)
        return LoadedModule(*known, package=self.package, identity=self.identity)


class _Checked(NamedTuple):
    """A module as it was when it was checked, and the way to its package directory."""

    loaded: LoadedModule
    folder: str
    package: Path
    identity: DirectoryIdentity

    def is_current(self, module_id: str, folder: Path, module: ModuleType) -> bool:
        """True if the module is still the same, and comes from the same place."""
        return (
            self.loaded.module_id == module_id
            and self.folder == str(folder)
            and self.loaded.mount is getattr(module, "mount", None)
            and self.loaded.on_session_ready is getattr(module, "on_session_ready", None)
            and self.identity == identity_of(self.package) != _NOWHERE
        )


_checked: WeakKeyDictionary[ModuleType, _Checked] = WeakKeyDictionary()


def load_checked(module_id: str, folder: Path) -> LoadedModule:
    """Import the package in a folder and check what needs no instance; both happen once in a process."""
    module = sys.modules.get(package_name(module_id))
    known = _checked.get(module) if module is not None else None
    if known is not None and module is not None and known.is_current(module_id, folder, module):
        return known.loaded.copy()
    found = _package_in(folder, module_id)
    package = _real(found)
    make_way(module_id, package)
    module, loaded = _load_package(module_id, package)
    note_folder(module, package)
    loaded.package, loaded.identity = module.__name__.partition(".")[0], identity_of(folder)
    _checked[module] = _Checked(loaded, str(folder), found, identity_of(found))
    return loaded.copy()


def load_unchecked(module_id: str, folder: Path) -> LoadedModule:
    """Import the package in a folder; its mount function needs not fulfil more than its own signature."""
    package = _real(_package_in(folder, module_id))
    make_way(module_id, package)
    with raised_as(lambda error: import_error(module_id, str(package), error), catches=FROM_AN_IMPORT):
        module = import_module_from_path(package)
    note_folder(module, package)
    return load_function(module_id, getattr(module, "mount", None), module, str(package))


def identity_of(directory: Path) -> DirectoryIdentity:
    try:
        status = os.stat(directory)  # noqa: PTH116 - asked for every load
    except OSError:
        return _NOWHERE
    return (status.st_dev, status.st_ino)


def _real(package: Path) -> Path:
    """Return a package's directory without links above it: what it imports later must come from the same place."""
    return Path(os.path.realpath(package.parent), package.name)


def _package_in(folder: Path, module_id: str) -> Path:
    package = find_package(folder, module_id)
    if package is None:
        raise ModuleValidationError(
            f"Module '{module_id}' has no valid Python package at {folder}",
            reason_code="invalid_package_layout" if folder.exists() else "missing_source",
            hint=f"put its code into {folder / package_name(module_id)} with an __init__.py",
        )
    return package


def _load_package(module_id: str, package: Path) -> tuple[ModuleType, LoadedModule]:
    def unimportable(error: BaseException) -> ModuleValidationError:
        return _validation_error(module_id, "", package, [not_importable(error)], _import_hint(str(package), error))

    with raised_as(unimportable, catches=FROM_AN_IMPORT):
        module = import_module_from_path(package)
    module_type = module_type_of(module, module_id)
    if module_type not in CONTRACTS:
        logger.warning("module '%s' is a %s, for which there is no validator", module_id, module_type)
        return module, load_function(module_id, getattr(module, "mount", None), module, str(package))
    checks = [
        ValidationCheck("module_importable", True, f"Module loaded from {package}", "info"),
        *static_checks(module),
    ]
    if not all(check.passed for check in checks):
        hint = f"define `async def mount(coordinator, config)` in {module.__file__}"
        if any(check.name == "on_session_ready_async" and not check.passed for check in checks):
            hint = f"define `async def on_session_ready(coordinator)` in {module.__file__}"
        raise _validation_error(module_id, module_type, package, checks, hint)
    ready = getattr(module, "on_session_ready", None)
    return module, LoadedModule(module_id, module_type, module.mount, str(module.__file__), ready, checks)


def load_function(module_id: str, mount: Any, module: ModuleType | None, origin: str) -> LoadedModule:
    """Take a mount function that needs not fulfil more than its own signature."""
    file = getattr(module, "__file__", None) or origin
    if not callable(mount):
        raise ModuleImportError(
            f"Module '{module_id}' found at {origin} but failed to load: there is no mount() function",
            hint=f"define `async def mount(coordinator, config)` in {file}",
        )
    checks = static_checks(SimpleNamespace(mount=mount))
    if not all(check.passed for check in checks):
        hint = f"define `async def mount(coordinator, config)` in {file}"
        raise _validation_error(module_id, "", Path(origin), checks, hint)
    ready = getattr(module, "on_session_ready", None)
    if ready is not None and not inspect.iscoroutinefunction(ready):
        logger.warning("Module '%s' defines on_session_ready() as sync — must be async. Skipping.", module_id)
        ready = None
    if ready is not None:
        with suppress(AttributeError):  # a bound method has no attributes of its own
            mount.__on_session_ready__ = (module_id, ready)
    return LoadedModule(
        module_id, "", mount, file, ready, package=module.__name__.partition(".")[0] if module is not None else ""
    )


def check_mounted(loaded: LoadedModule, mounting: Mounting, coordinator: ModuleCoordinator, returned: Any) -> None:
    """Hold what a module mounted to the contract of its type; raises `ModuleValidationError`."""
    if loaded.module_type not in CONTRACTS:
        return
    mounted = mounting.mounted(TYPE_TO_MOUNT_POINT[loaded.module_type])
    has_handlers = loaded.module_type == "hook" and mounting.has_handlers()
    found = instance_checks(loaded.module_type, mounted, returned, handlers_registered=has_handlers)
    if any(not check.passed and check.severity == "error" for check in found):
        if not mounting.has_mounted(returned):
            coordinator.register_cleanup(returned)
        hint = f"make what {loaded.file} mounts a {loaded.module_type} (docs/contracts/{loaded.module_type}.md)"
        checks = [*loaded.checks, *found]
        error = _validation_error(loaded.module_id, loaded.module_type, Path(loaded.file), checks, hint)
        if loaded.folder is not None:
            tell_origin(error, loaded.folder, loaded.source)
        raise error


def import_error(module_id: str, origin: str, cause: BaseException) -> ModuleLoadError:
    """Return the error for a module that is there and cannot be imported."""
    return ModuleImportError(
        f"Module '{module_id}' found at {origin} but failed to load: {type(cause).__name__}: {describe(cause)}",
        hint=_import_hint(origin, cause),
    )


def _validation_error(
    module_id: str, module_type: str, path: Path, checks: list[ValidationCheck], hint: str
) -> ModuleValidationError:
    result = ValidationResult(module_type, str(path), checks)
    errors = "; ".join(f"{check.name}: {check.message}" for check in result.errors)
    is_entry_point = any(check.name in _ENTRY_POINT_CHECKS for check in result.errors)
    return ModuleValidationError(
        f"Module '{module_id}' failed validation: {result.summary()}. Errors: {errors}",
        reason_code="invalid_entry_point" if is_entry_point else "validation_failed",
        hint=hint,
    )


def _is_machinery(file: str) -> bool:
    """True if code belongs to what imports modules; a package may have put its own finder of metadata there."""
    return file.startswith(_MACHINERY) or Path(file).parent.name == "importlib_metadata"


def _import_hint(origin: str, cause: BaseException) -> str:
    if isinstance(cause, ModulePathConflict):
        return ONE_PLACE_HINT
    if isinstance(cause, SyntaxError):
        return f"correct line {cause.lineno} of {cause.filename}"
    frames = [one for one in traceback.extract_tb(cause.__traceback__) if not _is_machinery(one.filename)]
    if isinstance(cause, ImportError) and cause.name:
        importer = frames[-1].filename if frames else origin
        return f"install {cause.name!r}, which {importer} imports, or name it among the module's dependencies"
    return f"correct line {frames[-1].lineno} of {frames[-1].filename}" if frames else f"correct {origin}"


Discard = Callable[[LoadedModule], None]


class BoundModule(partial[Coroutine[Any, Any, Any]]):
    """A coroutine function that mounts the module on a coordinator; when that fails it leaves nothing behind.

    It has `__on_session_ready__`, the module's ID and a function, when the module wants to hear that all are mounted.
    """

    __on_session_ready__: tuple[str, ReadyCallback]

    def __new__(cls, loaded: LoadedModule, config: Mapping[str, Any], discard: Discard) -> Self:
        bound = super().__new__(cls, _mount, loaded, config, discard)
        bound.__module__ = getattr(loaded.mount, "__module__", None) or __name__
        if loaded.on_session_ready is not None:
            bound.__on_session_ready__ = (loaded.module_id, loaded.on_session_ready)
        return bound

    async def mount_within(self, mounting: Mounting, coordinator: ModuleCoordinator) -> Any:
        """Mount the module as part of a mounting that has more to do afterwards, and takes back all or nothing."""
        loaded, config, discard = self.args
        return await _mount_within(mounting, loaded, config, discard, coordinator)


class _Use(NamedTuple):
    """One instance of a module in a session; the loader forgets a module that has none."""

    loaded: LoadedModule
    discard: Discard

    def undo(self) -> None:
        self.loaded.mounted -= 1
        self.discard(self.loaded)


async def _mount(
    loaded: LoadedModule, config: Mapping[str, Any], discard: Discard, coordinator: ModuleCoordinator
) -> Any:
    async with Mounting(coordinator) as mounting:
        return await _mount_within(mounting, loaded, config, discard, coordinator)


async def _mount_within(
    mounting: Mounting,
    loaded: LoadedModule,
    config: Mapping[str, Any],
    discard: Discard,
    coordinator: ModuleCoordinator,
) -> Any:
    loaded.mounted += 1
    mounting.note(_Use(loaded, discard))
    returned = await loaded.mount(coordinator, config)
    if loaded.folder is not None and isinstance(coordinator, ModuleCoordinator):
        check_mounted(loaded, mounting, coordinator, returned)
    return returned
