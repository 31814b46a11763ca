"""The loader: module id → mount function, from a resolver's folder, a local source, or what is installed."""

import inspect
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from . import imported_code, sys_path
from .boundary import Boundary, settle
from .coordinator import ModuleCoordinator
from .exceptions import (
    ModuleDiscoveryError,
    ModuleLoadError,
    ModuleNotFoundError,
    ModulePathConflict,
    ModuleValidationError,
    describe,
)
from .imported_code import entry_points, tell_origin
from .loaded_module import (
    FROM_AN_IMPORT,
    ONE_PLACE_HINT,
    BoundModule,
    LoadedModule,
    ReadyCallback,
    identity_of,
    import_error,
    load_checked,
    load_function,
    load_unchecked,
)
from .local_sources import path_of_source
from .models import ModuleInfo
from .packages import (
    TYPE_TO_MOUNT_POINT,
    find_package,
    folder_name,
    import_module_from_path,
    is_module_id,
    module_type_of,
    package_name,
    type_from_id,
)

__all__ = [
    "MODULE_FAILURE_REASONS",
    "TYPE_TO_MOUNT_POINT",
    "ModuleLoader",
    "ModuleValidationError",
    "module_failure_reason",
]

logger = logging.getLogger(__name__)

MODULE_FAILURE_REASONS = frozenset(
    {
        "invalid_package_layout",
        "missing_source",
        "invalid_entry_point",
        "invalid_module_metadata",
        "validation_failed",
        "unknown",
    }
)

Mount = Callable[[ModuleCoordinator], Awaitable[Any]]
FolderLoad = Callable[[str, Path], LoadedModule]

# How resolvers take the hint: by these names, by position (None), or not at all. The first that fits is used.
_HINTS: tuple[tuple[str, ...] | None, ...] = (
    ("source_hint", "profile_hint"),
    ("source_hint",),
    ("profile_hint",),
    None,
    (),
)
_hints_by_function: WeakKeyDictionary[Callable[..., Any], tuple[str, ...] | None] = WeakKeyDictionary()


def module_failure_reason(error: BaseException) -> str:
    """Return the reason code of a failed load, `unknown` for errors that carry none."""
    reason = getattr(error, "reason_code", None)
    if isinstance(reason, str) and reason in MODULE_FAILURE_REASONS:
        return reason
    return "missing_source" if isinstance(error, ModuleNotFoundError) else "unknown"


class ModuleLoader:
    """Finds, imports and checks modules for one session, and remembers what it put on `sys.path`."""

    __slots__ = ("__dict__", "__weakref__", "coordinator")  # a mock made after the class has it, too

    def __init__(self, coordinator: ModuleCoordinator | None = None, search_paths: list[Path] | None = None) -> None:
        self.coordinator = coordinator
        self._search_paths = search_paths
        self._loaded: dict[str, LoadedModule] = {}
        self._added_paths: list[str] = []
        self._ready_queue: list[tuple[str, ReadyCallback]] = []

    async def discover(self) -> list[ModuleInfo]:
        """Return what is installed as entry point and what lies on the search paths."""
        found = [_info(point.name, type_from_id(point.name)) for point in entry_points()]
        for directory in self._search_directories():
            if not directory.exists():
                logger.warning("Module path does not exist: %s", directory)
                continue
            for folder in sorted(directory.glob(folder_name("*"))):
                module_id = folder.name.removeprefix(folder_name(""))
                if folder.is_dir() and module_id:
                    try:
                        found.append(_info(module_id, _type_in_folder(folder, module_id)))
                    except ModuleValidationError as exc:
                        logger.error("module in %s is left out: %s", folder, exc)  # noqa: TRY400 - the text says it all
        return found

    async def load(
        self,
        module_id: str,
        config: Mapping[str, Any] | None = None,
        source_hint: Any = None,
        coordinator: ModuleCoordinator | None = None,
        *,
        profile_source: Any = None,
    ) -> Mount:
        """Return a coroutine function that mounts the module, with `config` bound, on a coordinator.

        With a mounted `module-source-resolver` the resolver says where the module is, given `source_hint`; without
        one, a hint that is an absolute path or `file://` URL of a folder does; else what is installed counts.
        Raises `ModuleNotFoundError` when there is no such module and `ModuleLoadError` when it cannot be used.
        """
        hint = profile_source if source_hint is None else source_hint
        try:
            loaded = await self._find(module_id, hint)
        except Exception as exc:
            logger.error("Failed to load module '%s': %s", module_id, describe(exc))  # noqa: TRY400 - raised, too
            raise
        return BoundModule(loaded, config or {}, self._discard)

    async def initialize(self, module: Mount, coordinator: ModuleCoordinator) -> Any:
        """Await `module(coordinator)`, logging a failure."""
        try:
            return await module(coordinator)
        except Exception:
            logger.exception("Failed to initialize module")
            raise

    def cleanup(self) -> None:
        """Forget the modules and take their entries off `sys.path`, except those another live loader still needs."""
        self._loaded.clear()
        while self._added_paths:
            sys_path.release(self._added_paths.pop())

    def get_on_session_ready_queue(self) -> list[tuple[str, ReadyCallback]]:
        return list(self._ready_queue)

    def enqueue_on_session_ready(self, module_id: str, fn: ReadyCallback) -> None:
        self._ready_queue.append((module_id, fn))

    def clear_on_session_ready_queue(self) -> None:
        self._ready_queue.clear()

    @property
    def title(self) -> str:
        """Who loads modules here, for a person."""
        session_id = getattr(self.coordinator, "session_id", None)
        return f"session {session_id!r}" if session_id else "a loader without a session"

    def uses(self, package: str) -> bool:
        """True if a module of `package` is loaded here, and its session has not ended."""
        return any(loaded.package == package for loaded in list(self._loaded.values()))

    async def _find(self, module_id: str, hint: Any) -> LoadedModule:
        if not is_module_id(module_id):
            raise _not_found(module_id)
        cached = self._loaded.get(module_id)
        try:
            folder, source = await self._resolve(module_id, hint)
        except ModuleNotFoundError as exc:
            if getattr(exc, "names_source", False):
                raise  # a module that is installed would be other code than the plan names
            return self._loaded_directly(module_id, cached, not_found=exc)
        if folder is None:
            return cached or self._loaded_directly(module_id, None, not_found=_not_found(module_id, hint))
        if cached is not None and cached.folder is not None:
            if not _is_same_folder(cached, folder):
                raise ModulePathConflict(
                    f"Refusing to load '{module_id}' from {folder}: it is already loaded from {cached.folder}",
                    hint=ONE_PLACE_HINT,
                )
            return cached
        with imported_code.lock:
            try:
                loaded = self._load_folder(module_id, folder, load_checked)
            except ModuleLoadError as exc:
                tell_origin(exc, folder, source)
                raise
            loaded.folder, loaded.source = folder, source
            self._keep(loaded)
        return loaded

    async def _resolve(self, module_id: str, hint: Any) -> tuple[Path | None, object]:
        """Return the module's folder, None when neither a resolver nor the hint names one, and its module source."""
        resolver = None
        if self.coordinator is not None:
            try:
                resolver = self.coordinator.get("module-source-resolver")
            except ValueError:
                logger.debug("the coordinator has no mount point for a resolver")
        if resolver is None:
            return _local_folder(hint), None
        ask = getattr(resolver, "async_resolve", None) or resolver.resolve
        hints = _hints_taken_by(ask)
        source = ask(module_id, hint) if hints is None else ask(module_id, **dict.fromkeys(hints, hint))
        source = await settle(source)
        resolve = getattr(source, "resolve", None)
        folder = resolve() if callable(resolve) else None
        if isinstance(folder, Path):
            return folder, source
        if not isinstance(folder, (str, os.PathLike)):
            name, answer = type(resolver).__name__, type(source).__name__
            raise ModuleLoadError(
                f"Module '{module_id}' cannot be loaded: the resolver {name} answered {answer}, which names no folder",
                hint=f"have {name} return an object whose resolve() gives the module's folder",
            )
        return Path(folder), source

    def _load_folder(self, module_id: str, folder: Path, load: FolderLoad) -> LoadedModule:
        """Load from a folder that goes on `sys.path`; whatever goes wrong, `sys.path` is left as it was."""
        entry = str(folder)
        is_new = self._hold_path(entry)
        loaded = None
        try:
            loaded = load(module_id, folder)
            loaded.sys_path_entry = entry
        finally:
            if loaded is None and is_new:
                self._release_path(entry)
        return loaded

    def _loaded_directly(
        self, module_id: str, cached: LoadedModule | None, *, not_found: ModuleNotFoundError
    ) -> LoadedModule:
        """Load what is installed or on the search paths: entry point, then folder, then plain import."""
        if cached is not None and cached.folder is None:
            return cached
        failures: list[ModuleLoadError] = []
        for attempt in self._direct_attempts(module_id):
            try:
                with imported_code.lock:
                    loaded = attempt()
                    if loaded is not None:
                        self._keep(loaded)
            except ModuleLoadError as exc:
                failures.append(exc)
                continue
            if loaded is not None:
                return loaded
        raise failures[0] if failures else not_found

    def _keep(self, loaded: LoadedModule) -> None:
        if not self._loaded:
            imported_code.add_user(self)
        self._loaded[loaded.module_id] = loaded

    def _direct_attempts(self, module_id: str) -> Iterator[Callable[[], LoadedModule | None]]:
        yield partial(_from_entry_point, module_id)
        for directory in self._search_directories():
            for name in (folder_name(module_id), module_id):
                if os.path.isdir(directory / name):  # noqa: PTH112 - is_dir() raises for names no file system can hold
                    yield partial(self._load_folder, module_id, directory / name, load_unchecked)
        yield partial(_from_import, module_id)

    def _discard(self, loaded: LoadedModule) -> None:
        """Forget a module none of whose instances is mounted."""
        if not loaded.mounted and self._loaded.get(loaded.module_id) is loaded:
            del self._loaded[loaded.module_id]
            if loaded.sys_path_entry is not None:
                self._release_path(loaded.sys_path_entry)

    def _hold_path(self, entry: str) -> bool:
        """Put `entry` on `sys.path` for this loader; False when it already holds it or needs not."""
        if entry in self._added_paths or not sys_path.hold(entry):
            return False
        self._added_paths.append(entry)
        return True

    def _release_path(self, entry: str) -> None:
        if entry in self._added_paths and not any(other.sys_path_entry == entry for other in self._loaded.values()):
            self._added_paths.remove(entry)
            sys_path.release(entry)

    def _search_directories(self) -> Iterator[Path]:
        if self._search_paths:
            return (Path(path) for path in self._search_paths)
        return (Path(path) for path in os.environ.get("AMPLIFIER_MODULES", "").split(":") if path)


def _from_entry_point(module_id: str) -> LoadedModule | None:
    point = next((point for point in entry_points() if point.name == module_id), None)
    if point is None:
        return None
    # A stand-in for an entry point may have a name and `load` only.
    origin, home = f"entry point {getattr(point, 'value', point.name)!r}", getattr(point, "module", "")
    if not imported_code.make_way_for_installed(module_id, home.partition(".")[0]):
        return None
    message = "%s of module '%s' cannot be loaded: %s"
    with Boundary(logger, message, origin, module_id, level=logging.ERROR, catches=FROM_AN_IMPORT) as boundary:
        if home:
            imported_code.import_installed(home.partition(".")[0])
        mount = point.load()
    if boundary.error is not None:
        file = getattr(sys.modules.get(home), "__file__", None)
        raise import_error(module_id, file or origin, boundary.error) from boundary.error
    return load_function(module_id, mount, sys.modules.get(getattr(mount, "__module__", home)), origin)


def _from_import(module_id: str) -> LoadedModule | None:
    package = package_name(module_id)
    if not imported_code.make_way_for_installed(module_id, package):
        return None
    try:
        module = imported_code.import_installed(package)
    except UnicodeError:  # a name no file system can hold
        return None
    except FROM_AN_IMPORT as exc:
        missing = exc.name if isinstance(exc, ImportError) else None
        if missing is not None and (package == missing or package.startswith(f"{missing}.")):
            return None
        raise import_error(module_id, package, exc) from exc
    return load_function(module_id, getattr(module, "mount", None), module, package)


def _is_same_folder(loaded: LoadedModule, folder: Path) -> bool:
    """True if a module would come from where it came from: the same directory, by whatever path."""
    is_same = identity_of(folder) == loaded.identity
    return is_same if loaded.identity != (0, 0) else loaded.folder == folder


def _local_folder(hint: Any) -> Path | None:
    """Return the folder that a source names by itself: an absolute path or a `file://` URL."""
    path = path_of_source(hint)
    return path if path is not None and os.path.isdir(path) else None  # noqa: PTH112 - Path.is_dir() may raise


def _hints_taken_by(ask: Callable[..., Any]) -> tuple[str, ...] | None:
    """Return the names under which a resolver takes the hint; None when it takes it by position."""
    function = getattr(ask, "__func__", ask)
    if function not in _hints_by_function:
        signature = inspect.signature(ask)
        _hints_by_function[function] = next((hints for hints in _HINTS if _fits(signature, hints)), ())
    return _hints_by_function[function]


def _fits(signature: inspect.Signature, hints: tuple[str, ...] | None) -> bool:
    try:
        signature.bind("", "") if hints is None else signature.bind("", **dict.fromkeys(hints))
    except TypeError:
        return False
    return True


def _type_in_folder(folder: Path, module_id: str) -> str:
    package = find_package(folder, module_id)
    if package is not None:
        module = None
        message = "cannot import %s to learn its type: %s"  # discovery lists what is there; loading says what is wrong
        with Boundary(logger, message, package, level=logging.DEBUG, catches=FROM_AN_IMPORT):
            module = import_module_from_path(package)
        if module is not None:
            return module_type_of(module, module_id)
    return type_from_id(module_id)


def _info(module_id: str, module_type: str) -> ModuleInfo:
    return ModuleInfo.model_validate(
        {
            "id": module_id,
            "name": module_id.replace("-", " ").title(),
            "version": "1.0.0",
            "type": module_type,
            "mount_point": TYPE_TO_MOUNT_POINT[module_type],
            "description": f"Module: {module_id}",
        }
    )


def _not_found(module_id: object, source: object = None) -> ModuleDiscoveryError:
    """Return the error for a module that is nowhere; `source` is what the plan says when there is no resolver."""
    hint = "install a distribution that offers it, give it a source, or add its folder to AMPLIFIER_MODULES"
    if source is not None and path_of_source(source) is not None:
        hint = f"its source {source!r} is not a folder: correct it"
    elif source:
        hint = (
            f"its source {source!r} needs a resolver, and the session has none: "
            "mount one as 'module-source-resolver' before initialize()"
        )
    return ModuleDiscoveryError(f"Module '{module_id}' not found via entry points or filesystem", hint=hint)
