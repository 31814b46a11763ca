"""Where a module's code is, and of which type it is: id → package name, folder → package, package → imported module.

One set of rules for loading, discovery and validation.
"""

import ast
import importlib
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from .exceptions import ModulePathConflict, ModuleValidationError

logger = logging.getLogger(__name__)

ENTRY_POINT_GROUP = "amplifier.modules"
FOLDER_PREFIX = "amplifier-module-"
PACKAGE_PREFIX = "amplifier_module_"

TYPE_TO_MOUNT_POINT = {
    "orchestrator": "orchestrator",
    "provider": "providers",
    "tool": "tools",
    "hook": "hooks",
    "context": "context",
    "resolver": "module-source-resolver",
}

_TYPE_BY_WORD = {
    "orchestrat": "orchestrator",
    "loop": "orchestrator",
    "provider": "provider",
    "tool": "tool",
    "hook": "hook",
    "context": "context",
}
_TYPE_BY_PREFIX = {
    **{"loop": "orchestrator", "orchestrator": "orchestrator", "context": "context"},
    **{"provider": "provider", "providers": "provider", "tool": "tool", "tools": "tool"},
    **{"hook": "hook", "hooks": "hook"},
}
_PROVIDER_PREFIX = "provider-"
_TYPE_DECLARATION = "__amplifier_module_type__"
_SEPARATORS = frozenset("/\\\0")


def is_module_id(module_id: object) -> bool:
    """True if `module_id` can name a module at all; anything else is never looked up."""
    return isinstance(module_id, str) and module_id not in ("", ".", "..") and _SEPARATORS.isdisjoint(module_id)


def package_name(module_id: str) -> str:
    return PACKAGE_PREFIX + module_id.replace("-", "_")


def folder_name(module_id: str) -> str:
    return FOLDER_PREFIX + module_id


def type_from_prefix(module_id: str) -> str | None:
    """Return the module type that an id's first word names, as in `loop-basic` and `hooks-logging`, or None."""
    word, dash, _ = module_id.partition("-")
    return _TYPE_BY_PREFIX.get(word) if dash else None


def bare_name(module_id: str) -> str:
    """Return an id without the word that says its type, `bash` for `tool-bash`; empty when it has none."""
    return module_id.partition("-")[2]


def suggested_type(module_id: str) -> str | None:
    """Return the module type an id suggests anywhere in it, None when it suggests none."""
    lowered = module_id.lower()
    return next((module_type for word, module_type in _TYPE_BY_WORD.items() if word in lowered), None)


def type_from_id(module_id: str) -> str:
    """Return the module type an id suggests, `tool` when it suggests none."""
    return suggested_type(module_id) or "tool"


def provider_name(module_id: str) -> str:
    """Return the name a provider goes by and is mounted under, `acme` for `provider-acme`."""
    return module_id.removeprefix(_PROVIDER_PREFIX)


def provider_module_id(name: str) -> str:
    """Return the id of a provider that is named by its id or by its name."""
    return _PROVIDER_PREFIX + provider_name(name)


def declared_type(module: ModuleType) -> Any:
    """Return what a package declares in `__amplifier_module_type__`, known or not; None when that is empty."""
    return getattr(module, _TYPE_DECLARATION, None) or None


def module_type_of(module: ModuleType, module_id: str) -> str:
    """Return the type a package declares, else the one its id suggests.

    Raises `ModuleValidationError` when it declares an unknown one.
    """
    return _known_type(declared_type(module), module_id, module.__file__)


def module_type_in(tree: ast.Module, module_id: str, file: Path) -> str:
    """Return the same for a package that is not imported, from the syntax tree of its file.

    A declaration that is not a literal counts as none.
    """
    declared = None
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _declares_type(node):
            declared = _literal(node.value)
    return _known_type(declared, module_id, file)


def find_package(folder: Path, module_id: str | None = None) -> Path | None:
    """Return the package directory of the module in `folder`, or None.

    The package named after the id comes first, then the one the folder's `pyproject.toml` names as entry point,
    then the folder itself, then any `amplifier_module_*` below it.
    """
    module_id = module_id or module_id_of(folder)
    by_id = folder / package_name(module_id)
    if _is_package(by_id):
        return by_id
    by_entry_point = _entry_point_package(folder, module_id)
    if by_entry_point is not None and _is_package(by_entry_point):
        return by_entry_point
    if _is_package(folder):
        return folder
    return next((child for child in sorted(folder.glob(f"{PACKAGE_PREFIX}*")) if _is_package(child)), None)


def find_code(path: Path, module_id: str) -> Path | None:
    """Return the package, or the single file, of a module: at the path itself, in that folder or in its `src/`.

    Unlike `find_package`, only what is named after the id, or named by its entry point, counts.
    """
    package = package_name(module_id)
    named = [path] if path.name in (package, f"{package}.py") else []
    named = named or [path / package, path / "src" / package, path / f"{package}.py"]
    if found := next((candidate for candidate in named if _is_code(candidate)), None):
        return found
    parts = entry_points_of(path).get(module_id, "").partition(":")[0].strip().split(".")
    if not all(part.isidentifier() for part in parts):
        return None
    folders = (path, path / "src")
    return next((folder / parts[0] for folder in folders if _is_package(folder.joinpath(*parts))), None)


def module_id_of(path: Path) -> str:
    """Return the id of the module in a folder or package directory whose id was not given."""
    entry_points = entry_points_of(path)
    if len(entry_points) == 1:
        return next(iter(entry_points))
    name = os.path.basename(os.path.abspath(path))  # noqa: PTH100, PTH119 - resolve() would lose the name of a link
    if name.startswith(PACKAGE_PREFIX):
        return name.removeprefix(PACKAGE_PREFIX).replace("_", "-")
    return name.removeprefix(FOLDER_PREFIX)


def import_module_from_path(module_path: str | Path) -> ModuleType:
    """Import a package directory or a file under its own name, through the normal import system.

    Raises `ModulePathConflict`, an `ImportError`, when that name, or a cached submodule of it, is already loaded
    from another file: Python keeps one module per name, and running the other file's code instead would be worse
    than stopping.
    """
    path = Path(module_path)
    is_directory = path.is_dir()
    source = path / "__init__.py" if is_directory else path
    name = path.name if is_directory else path.stem
    loaded = sys.modules.get(name)
    if loaded is not None:
        _refuse_other_file(name, loaded, source)
        return loaded
    cached = submodules(name)
    for submodule in cached:
        file = getattr(sys.modules[submodule], "__file__", None)
        if file is None or not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(path)):
            raise ModulePathConflict(
                f"Refusing to import '{name}' from {source}: cached submodule '{submodule}' is from {file}"
            )
    with _first_on_sys_path(str(path.parent)):
        importlib.invalidate_caches()
        is_imported = False
        try:
            module = importlib.import_module(name)
            _refuse_other_file(name, module, source)
            is_imported = True
        finally:
            if not is_imported:
                _forget({name, *submodules(name)} - set(cached))
    return module


@contextmanager
def private_copy(path: str | Path) -> Iterator[ModuleType]:
    """Import a second, separate copy of a package for the length of the `with` block.

    The copy's module-level state is its own; afterwards the process sees the modules it saw before.
    """
    path = Path(path)
    name = path.name if path.is_dir() else path.stem
    mine = (name, *submodules(name))
    kept = {key: sys.modules.pop(key) for key in mine if key in sys.modules}
    try:
        yield import_module_from_path(path)
    finally:
        _forget({name, *submodules(name)})
        sys.modules.update(kept)


def _known_type(declared: Any, module_id: str, file: object) -> str:
    if not declared:
        return type_from_id(module_id)
    if not isinstance(declared, str) or declared not in TYPE_TO_MOUNT_POINT:
        raise ModuleValidationError(
            f"Module '{module_id}' has unknown type '{declared}'. Valid types: {list(TYPE_TO_MOUNT_POINT)}",
            reason_code="invalid_module_metadata",
            hint=f"correct {_TYPE_DECLARATION} in {file}",
        )
    return declared


def _declares_type(node: ast.Assign | ast.AnnAssign) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == _TYPE_DECLARATION for target in targets)


def _literal(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # all that its documentation names
        return None


def _is_code(path: Path) -> bool:
    return path.is_file() if path.suffix == ".py" else _is_package(path)


def _is_package(directory: Path) -> bool:
    return os.path.isfile(os.path.join(directory, "__init__.py"))  # noqa: PTH113, PTH118 - asked for every load


def _entry_point_package(folder: Path, module_id: str) -> Path | None:
    entry_points = entry_points_of(folder)
    target = entry_points.get(module_id) or (next(iter(entry_points.values())) if len(entry_points) == 1 else "")
    parts = target.partition(":")[0].strip().split(".")
    return folder.joinpath(*parts) if all(part.isidentifier() for part in parts) else None


def entry_points_of(folder: Path) -> dict[str, str]:
    """Return the module entry points that the folder's `pyproject.toml` declares: id → target."""
    pyproject = folder / "pyproject.toml"
    if not pyproject.is_file():
        return {}
    import tomllib  # only folders that do not follow the naming rule need it

    try:
        project = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("project", {})
        declared = project.get("entry-points", {}).get(ENTRY_POINT_GROUP, {})
        return {str(name): str(target) for name, target in declared.items()}
    except (OSError, ValueError, AttributeError) as exc:
        logger.warning("%s is not readable and counts as absent: %s", pyproject, exc)
        return {}


def _refuse_other_file(name: str, module: ModuleType, source: Path) -> None:
    file = getattr(module, "__file__", None)
    if file != str(source) and (file is None or os.path.realpath(file) != os.path.realpath(source)):
        raise ModulePathConflict(f"Refusing to import '{name}' from {source}: it is already loaded from {file}")


def submodules(name: str) -> tuple[str, ...]:
    """Return the names of a package's imported submodules."""
    return tuple(key for key in list(sys.modules) if key.startswith(f"{name}."))


def _forget(names: set[str]) -> None:
    for name in names:
        sys.modules.pop(name, None)


@contextmanager
def _first_on_sys_path(entry: str) -> Iterator[None]:
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        if entry in sys.path:
            sys.path.remove(entry)
