"""Validates a module the way a session would use it: import, mount, look, clean up, leave no trace."""

import asyncio
import copy
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from amplifier_core.boundary import Boundary, TaskBoundary, settle
from amplifier_core.exceptions import ModuleValidationError, describe
from amplifier_core.packages import (
    ENTRY_POINT_GROUP,
    declared_type,
    entry_points_of,
    find_package,
    import_module_from_path,
    module_id_of,
    module_type_of,
    package_name,
    private_copy,
    suggested_type,
    type_from_id,
)
from amplifier_core.sys_path import held_entries

from .contracts import (
    COMPLIANCE,
    CONTRACTS,
    Contract,
    ValidationCheck,
    ValidationResult,
    check_on_session_ready,
    failed,
    fulfils,
    handler_checks,
    instance_checks,
    passed,
    static_checks,
)

if TYPE_CHECKING:
    from amplifier_core.coordinator import ModuleCoordinator

__all__ = [
    "CONTRACTS",
    "Contract",
    "ModuleValidator",
    "ValidationCheck",
    "ValidationResult",
    "check_on_session_ready",
    "fulfils",
    "import_module_from_path",
    "instance_checks",
    "not_importable",
    "static_checks",
    "validate_module",
]

logger = logging.getLogger(__name__)

_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


class ModuleValidator:
    """Validates modules of one type."""

    module_type: ClassVar[str]

    async def validate(
        self, module_path: str | Path, entry_point: str | None = None, config: dict[str, Any] | None = None
    ) -> ValidationResult:
        """Import and mount the module at `module_path` apart from everything else, and say what is wrong with it.

        The path is a module's folder, a package directory or a file; what does not exist counts as a dotted name.
        `entry_point` is accepted for older callers and has no meaning.
        """
        return await validate_module(module_path, self.module_type, config)

    async def _check_protocol_compliance(
        self, result: ValidationResult, mount: Callable[..., Any], config: dict[str, Any] | None = None
    ) -> None:
        """Add the checks of what a mount function mounts; tests of published modules call it."""
        from amplifier_core.testing import MockCoordinator

        module = SimpleNamespace(mount=mount)
        await _mount_and_look(module, config, MockCoordinator(), result, goes_by=self.module_type)


async def validate_module(
    module_path: str | Path, module_type: str | None = None, config: dict[str, Any] | None = None
) -> ValidationResult:
    """Validate a module; without `module_type` as what it declares itself to be, else as what its id suggests.

    Whatever the module does is a check in the result. Raises `ValueError` only for a type that has no validator.
    """
    from amplifier_core.testing import MockCoordinator  # unittest.mock is not for every process that imports the kernel

    result = ValidationResult(_known_type(module_type) if module_type else "", str(module_path))
    async with _one_at_a_time():
        with _no_trace(), ExitStack() as stack:
            module = _import(module_path, result, stack)
            if not result.module_type:
                result.module_type = _known_type(_find_type(module_path, module, result))
            if module is not None and result.passed:
                checks = static_checks(module)
                result.checks += checks
                if checks[0].passed:
                    await _mount_and_look(
                        module, config, MockCoordinator(), result, goes_by=_type_for_messages(module_path, module)
                    )
    return result


def _known_type(module_type: str) -> str:
    if module_type not in CONTRACTS:
        raise ValueError(f"there is no validator for module type {module_type!r}, only for {', '.join(CONTRACTS)}")
    return module_type


def _find_type(module_path: str | Path, module: ModuleType | None, result: ValidationResult) -> str:
    with _reporting(lambda error: logger.debug("cannot tell the id of %r: %s", module_path, error)):
        module_id = module_id_of(Path(module_path))
        try:
            return type_from_id(module_id) if module is None else module_type_of(module, module_id)
        except ModuleValidationError as exc:
            result.add(failed("module_type", str(exc)))
            return type_from_id(module_id)
    return type_from_id(str(module_path))


def _type_for_messages(module_path: str | Path, module: ModuleType) -> str | None:
    """Return the type that a module declares or its id suggests; None when neither tells one."""
    if declared_type(module) is None:
        with _reporting(lambda error: logger.debug("cannot tell the id of %r: %s", module_path, error)):
            return suggested_type(module_id_of(Path(module_path)))
    return _find_type(module_path, module, ValidationResult("", ""))


def _import(module_path: str | Path, result: ValidationResult, stack: ExitStack) -> ModuleType | None:
    module = None
    with _reporting(lambda error: result.add(not_importable(error))):
        path = Path(os.path.abspath(module_path))  # noqa: PTH100 - resolve() would lose the name of a linked folder
        if not path.exists():
            name = str(module_path)
            module = stack.enter_context(_private_import(name))
            result.add(passed("module_importable", f"Module '{name}' imported successfully"))
            return module
        source = find_package(path) if path.is_dir() else path
        if source is None:
            result.add(failed("module_importable", f"No __init__.py found in {module_path}"))
            return None
        module = stack.enter_context(private_copy(source))
        result.add(passed("module_importable", f"Module loaded from {module_path}"))
        if path.is_dir() and source != path:
            result.checks += _name_checks(path, module)
    return module


def _name_checks(folder: Path, module: ModuleType) -> Iterator[ValidationCheck]:
    """Yield what is wrong with the names by which the module of a folder is found: its entry point and its package."""
    for name, target in entry_points_of(folder).items():
        package, _, function = (part.strip() for part in target.partition(":"))
        if package.partition(".")[0] != module.__name__:
            yield failed("entry_point", f"The entry point {name} = {target!r} is not in the package {module.__name__}")
        elif package == module.__name__ and not callable(getattr(module, function or "mount", None)):
            yield failed("entry_point", f"The entry point {name} = {target!r} names no function of {package}")
    if entry_points_of(folder):
        return
    if (folder / "pyproject.toml").is_file():
        message = f"pyproject.toml names no entry point in the group {ENTRY_POINT_GROUP}: installed, it is not found"
        yield failed("entry_point", message, "warning")
    if module.__name__ != (expected := package_name(module_id_of(folder))):
        message = f"The package {module.__name__} is not named as its id: {expected}"
        yield failed("package_name", message, "warning")


def not_importable(error: BaseException) -> ValidationCheck:
    """Return the check of a module whose import ended with `error`."""
    verb = "Failed to import module" if isinstance(error, ImportError) else "Error loading module"
    return failed("module_importable", f"{verb}: {_text(error)}")


@contextmanager
def _private_import(name: str) -> Iterator[ModuleType]:
    """Import a dotted name from a private copy of its top-level package."""
    top_level = name.partition(".")[0]
    spec = importlib.util.find_spec(top_level)
    if spec is None:
        raise ModuleNotFoundError(f"No module named {top_level!r}", name=top_level)
    if not spec.has_location or spec.origin is None:  # a namespace or a part of the interpreter: nothing to copy
        yield importlib.import_module(name)
        return
    origin = Path(spec.origin)
    with private_copy(origin.parent if spec.submodule_search_locations else origin):
        yield importlib.import_module(name)


async def _mount_and_look(
    module: Any,
    config: dict[str, Any] | None,
    coordinator: "ModuleCoordinator",
    result: ValidationResult,
    *,
    goes_by: str | None,
) -> None:
    """Add the checks of what the module mounts; `goes_by` is the type it tells of itself, if it tells one.

    A module may install nothing of the type and do so later; but one that installs what belongs to another type, and
    does not go by this one, is of another type.
    """

    def report(error: BaseException) -> None:
        result.add(failed(COMPLIANCE, f"Error during protocol compliance check: {_text(error)}"))

    cleanup: Any = None
    try:
        with _reporting(report):
            cleanup = module.mount(coordinator, copy.deepcopy(config) if config else {})
            cleanup = returned = await cleanup
            mounted = _mounted(coordinator, CONTRACTS[result.module_type])
            if any(returned is one for one in mounted.values()) or fulfils(result.module_type, returned):
                cleanup = None  # the instance itself, which may well be callable
            has_handlers = any(coordinator.hooks.list_handlers().values())
            if result.module_type == "hook":
                result.checks += handler_checks(coordinator.hooks.registered_handlers())
            result.checks += instance_checks(
                result.module_type,
                mounted,
                returned,
                handlers_registered=has_handlers,
                may_decline=goes_by == result.module_type or not _did_something_else(coordinator, result.module_type),
            )
    finally:
        await _clean_up(cleanup, coordinator)


def _did_something_else(coordinator: "ModuleCoordinator", module_type: str) -> bool:
    """True if the module installed what belongs to another type."""
    others = (contract for contract in CONTRACTS.values() if contract.module_type not in (module_type, "hook"))
    return any(_mounted(coordinator, other) for other in others) or any(coordinator.hooks.list_handlers().values())


def _mounted(coordinator: "ModuleCoordinator", contract: Contract) -> dict[str, Any]:
    occupant = coordinator.mount_points[contract.mount_point]
    if "name" in contract.attributes:
        return dict(occupant)
    return {} if occupant is None else {contract.mount_point: occupant}


async def _clean_up(cleanup: Any, coordinator: "ModuleCoordinator") -> None:
    """Run the cleanup that `mount` returned, then those it registered; their errors do not affect the verdict."""

    def report(error: BaseException) -> None:
        logger.debug("cleanup after validation failed: %s", _text(error), exc_info=error)

    if callable(cleanup):
        with _reporting(report):
            await settle(cleanup())
    with _reporting(report):
        await coordinator.cleanup()


@contextmanager
def _reporting(report: Callable[[BaseException], None]) -> Iterator[None]:
    """Report whatever module code raises, `sys.exit()` included; only the caller's own interruptions pass."""
    message = "module code failed while it was validated: %s"
    with TaskBoundary(logger, message, level=logging.DEBUG, catches=BaseException) as boundary:
        yield
    if isinstance(boundary.error, KeyboardInterrupt | GeneratorExit):
        raise boundary.error
    if boundary.error is not None:
        report(boundary.error)


def _text(error: BaseException) -> str:
    """Return what an error says; its representation if it says nothing or is not an error, like `SystemExit`."""
    with Boundary(logger, "an error of a module cannot be printed: %s", level=logging.DEBUG):
        return (describe(error) if isinstance(error, Exception) else "") or repr(error)
    return type(error).__name__


@asynccontextmanager
async def _one_at_a_time() -> AsyncIterator[None]:
    """Two private copies of one package must not meet in `sys.modules`."""
    async with _turns.setdefault(asyncio.get_running_loop(), asyncio.Lock()):
        yield


@contextmanager
def _no_trace() -> Iterator[None]:
    """Give `sys.path` and `sys.modules` back as they were.

    What sessions load meanwhile stays, and so do installed packages that the module imported: not all of them can be
    imported twice.
    """
    path, modules = list(sys.path), dict(sys.modules)
    try:
        yield
    finally:
        path += [entry for entry in sys.path if entry in held_entries() and entry not in path]
        sys.path[:] = path
        for name in sys.modules.keys() - modules.keys():
            if not _is_on(path, sys.modules[name]):
                del sys.modules[name]
        sys.modules.update(modules)


def _is_on(path: list[str], module: object) -> bool:
    """True if a module is, or could be, imported from one of the entries."""
    # Anything can be put into sys.modules.
    with Boundary(logger, "a module cannot say where it is: %s", level=logging.DEBUG):
        location = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
        entries = [os.path.abspath(entry) for entry in path]  # noqa: PTH100 - plain strings, many of them
        return not isinstance(location, str) or any(Path(location).is_relative_to(entry) for entry in entries)
    return True
