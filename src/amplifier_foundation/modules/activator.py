"""Activation: a module's source is resolved, its dependencies are there, and it can be imported."""

import asyncio
import importlib
import logging
import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from amplifier_core.boundary import Boundary
from amplifier_core.packages import bare_name, folder_name
from amplifier_foundation.exceptions import BundleError, BundleLoadError, BundleNotFoundError, RefResolutionError
from amplifier_foundation.paths.home import get_amplifier_home
from amplifier_foundation.sources import Sources
from amplifier_foundation.sources.local import find_package
from amplifier_foundation.sources.reference import NameReference, parse_reference
from amplifier_foundation.sources.resolved import IGNORED_NAMES, is_planted_bytecode

from .environments import Environments, read_in_turn
from .import_paths import ImportPaths
from .install_state import InstallStateManager
from .requirements import (
    host_packages,
    is_installed,
    name_of,
    normalise,
    normalise_name,
    read_project,
    read_requirements,
    read_toml,
)

logger = logging.getLogger(__name__)

ProgressCallback = Callable[[str, str], None]


class ModuleActivationError(BundleError):
    """Modules that were required could not be activated."""


class ModuleActivator:
    """Activates modules, with a cache directory for what is fetched and installed.

    `installed` are the modules that run beside the activated ones and that the host has, None if that is not known:
    what the host has for others only need not agree with the activated ones. Relative sources count from `base_path`,
    the working directory by default. What is put on `sys.path` is kept in `import_paths`, for the prepared bundle it
    belongs to.
    """

    def __init__(
        self,
        cache_dir: Path | None = None,
        install_deps: bool = True,
        base_path: Path | None = None,
        strict: bool = False,
        *,
        offline: bool | None = None,
        installed: Collection[str] | None = None,
    ) -> None:
        self.offline = offline
        self._extras = None if installed is None else frozenset(map(bare_name, installed))
        self.cache_dir = cache_dir or get_amplifier_home() / "cache"
        self.install_deps = install_deps
        self.strict = strict
        self.import_paths = ImportPaths()
        self._base_path = base_path
        self._activated: set[tuple[str, str]] = set()
        self._bundle_package_paths: list[str] = []
        self._in_place = InPlacePackages()
        self._open_cache()

    def __getstate__(self) -> dict[str, Any]:
        """A copy has the same settings and import paths; it opens the cache for itself."""
        return {name: value for name, value in vars(self).items() if name not in ("_sources", "_environments")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._open_cache()

    def _open_cache(self) -> None:
        self._sources = Sources(self.cache_dir, offline=self.offline)
        self._environments = Environments(self.cache_dir, extras=self._extras)

    @property
    def _install_state(self) -> InstallStateManager:
        """What is installed for the modules, for applications that heal themselves by forgetting it."""
        return InstallStateManager(self.cache_dir)

    @property
    def bundle_package_paths(self) -> list[str]:
        """The directories from which the bundles' own packages are imported."""
        return list(self._bundle_package_paths)

    async def activate(
        self, module_name: str, source_uri: str, progress_callback: ProgressCallback | None = None
    ) -> Path:
        """Make a module importable and return its folder.

        Raises:
            BundleNotFoundError: the source leads nowhere.
            BundleLoadError: a folder of this machine has bytecode that would run in place of its source.
            InstallError: its dependencies cannot be installed; a `subprocess.CalledProcessError`.
            NoInstallerError: there is nothing to install them with; a `FileNotFoundError`.
        """
        if not isinstance(source_uri, str):  # it comes from a hand-written file
            raise BundleNotFoundError(f"No handler for URI: {source_uri!r} is not text")
        memory = (self.cache_dir, self._base_path, module_name, source_uri)
        try:
            path = await self._activate(module_name, source_uri, progress_callback)
        except Exception as error:
            note_failure(memory, error)
            raise
        note_success(memory)
        return path

    def find_failure(self, module_name: str, source_uri: str) -> str | None:
        """Return why the last activation of this module in this process failed, None when it did not."""
        return find_failure((self.cache_dir, self._base_path, module_name, source_uri))

    async def _activate(self, module_name: str, source_uri: str, progress_callback: ProgressCallback | None) -> Path:
        key = (module_name, source_uri)
        if key not in self._activated:
            _report(progress_callback, "activating", module_name)
        resolved = await self._sources.resolve(source_uri, base_dir=self._base_path or Path.cwd())
        if key not in self._activated:
            if resolved.kind == "local":
                await read_in_turn(lambda: check_bytecode(resolved.path, module_name))
            dependencies = await self._dependencies(
                module_name, resolved.path, lambda: _report(progress_callback, "installing", module_name)
            )
            self._add_paths(resolved.path, resolved.path / "src", dependencies)
            self._activated.add(key)
        return resolved.path

    async def activate_all(
        self, modules: list[dict[str, Any]], progress_callback: ProgressCallback | None = None
    ) -> dict[str, Path]:
        """Activate modules at the same time and return their folders by id; of one id the last success counts.

        Entries without `module` or `source` are skipped. A module that fails is logged and missing.

        Raises:
            ModuleActivationError: some failed and this activator is strict; all of them are named.
        """
        entries = [(entry["module"], entry["source"]) for entry in modules if _names_source(entry)]
        for module_id, _ in entries:
            self._in_place.add(folder_name(str(module_id)))  # whichever comes first, they may require each other
        outcomes = await asyncio.gather(
            *(self.activate(module_id, source, progress_callback=progress_callback) for module_id, source in entries),
            return_exceptions=True,
        )
        paths: dict[str, Path] = {}
        failures: list[tuple[str, Exception]] = []
        for (module_id, _), outcome in zip(entries, outcomes, strict=True):
            if isinstance(outcome, Path):
                paths[module_id] = outcome
            elif isinstance(outcome, Exception):
                failures.append((module_id, outcome))
            else:
                raise outcome
        if failures and self.strict:
            text = "; ".join(f"{module_id}: {error}" for module_id, error in failures)
            message = f"{len(failures)} of {len(entries)} modules failed to activate: {text}"
            raise ModuleActivationError(message) from failures[0][1]
        for module_id, error in failures:
            logger.warning("module %s is not activated and will be missing: %s", module_id, error)
        return paths

    async def activate_bundle_package(
        self, bundle_path: Path, progress_callback: ProgressCallback | None = None
    ) -> None:
        """Make a bundle's own Python package importable, in place; nothing to do when it has none or it is installed.

        Raises what `activate` raises for dependencies.
        """
        found = await asyncio.to_thread(self._find_package, bundle_path)
        if found is None:
            return
        name, roots = found
        _report(progress_callback, "installing_package", name)
        dependencies = await self._dependencies(name, bundle_path)
        own = [str(path) for path in roots]
        self.import_paths.add([*own, *([str(dependencies)] if dependencies else [])])
        self._bundle_package_paths += [path for path in own if path not in self._bundle_package_paths]

    def finalize(self) -> None:
        """Kept for callers that end an activation with it; nothing is left to do."""

    async def install_dependencies(self, owner: str, directory: Path, *, force: bool = False) -> Path | None:
        """Install what a folder requires and return where it is; None when it requires nothing that is not there."""
        requirements = await self._requirements_of(directory)
        return await self._environments.ensure(owner, requirements, force=force)

    async def note_in_place(self, bundle_paths: Iterable[Path], module_ids: Iterable[str]) -> None:
        """Note packages of bundles and modules that are used in place, so that no installer is asked for them."""
        for module_id in module_ids:
            self._in_place.add(folder_name(module_id))
        for path in bundle_paths:
            await asyncio.to_thread(self._find_package, path)

    def _find_package(self, bundle_path: Path) -> tuple[str, list[Path]] | None:
        """Return name and import directories of a bundle's own package; None when it has none or the host has it."""
        document = read_toml(bundle_path / "pyproject.toml")
        if "project" not in document and "build-system" not in document:
            return None
        project = read_project(bundle_path)
        name = project.get("name")
        if not isinstance(name, str) or not name:
            return str(bundle_path), import_roots(bundle_path, project)
        self._in_place.add(name, project)
        if is_installed(name) or host_packages(self.cache_dir).provides(normalise_name(name)):
            return None
        return name, import_roots(bundle_path, project)

    async def _requirements_of(self, directory: Path) -> tuple[str, ...]:
        return self._in_place.without(await read_in_turn(lambda: read_requirements(directory)))

    async def _dependencies(
        self, owner: str, directory: Path, on_install: Callable[[], None] | None = None
    ) -> Path | None:
        if not self.install_deps:
            return None
        made = False

        def note_install() -> None:
            nonlocal made
            made = True
            if on_install is not None:
                on_install()

        requirements = await self._requirements_of(directory)
        environment = await self._environments.ensure(owner, requirements, on_install=note_install)
        if made:
            importlib.invalidate_caches()
        return environment

    def _add_paths(self, module: Path, source: Path, dependencies: Path | None) -> None:
        paths = [module, *([source] if source.is_dir() else []), *([dependencies] if dependencies else [])]
        self.import_paths.add(str(path) for path in paths)


def is_installed_package(source: Any) -> bool:
    """True if a source names an installed package, which is used as it is."""
    if not isinstance(source, str):
        return False
    try:
        reference = parse_reference(source)
    except RefResolutionError:
        return False
    return (
        isinstance(reference, NameReference) and reference.subpath is None and find_package(reference.name) is not None
    )


def _names_source(entry: Any) -> bool:
    return isinstance(entry, dict) and bool(entry.get("module")) and bool(entry.get("source"))


def _report(callback: ProgressCallback | None, action: str, detail: str) -> None:
    if callback is not None:
        with Boundary(logger, "a progress callback failed on %r: %s", (action, detail), level=logging.ERROR):
            callback(action, detail)


_CACHE = "__pycache__"


def check_bytecode(directory: Path, owner: str) -> None:
    """Look through a module's folder; what Python itself keeps there is fine, since it is compared with its source.

    Raises:
        BundleLoadError: there is bytecode without a source, or bytecode that is not compared with it.
    """
    for place, subdirectories, files in os.walk(directory):
        subdirectories[:] = [name for name in subdirectories if name == _CACHE or name not in IGNORED_NAMES]
        is_cache = os.path.basename(place) == _CACHE  # noqa: PTH119 - asked for every folder
        for name in files:
            if not name.endswith(".pyc"):
                continue
            path = Path(place, name)
            hidden = is_planted_bytecode(path) if is_cache else f"{name[:-1]}" not in files
            if hidden:
                raise BundleLoadError(
                    f"module {owner} has bytecode that would run in place of its source: {path}",
                    hint="delete it; Python makes its own",
                )


# Distributions that are used where they lie: a bundle's own package, and the modules it names.


_EXTRAS = re.compile(r"[^\[;@]*\[([^\]]*)\]")
_NOT_FOR_IMPORT = ("test", "tests")


class InPlacePackages:
    """Names that no installer is asked for, because what they name is already there and often exists nowhere else."""

    def __init__(self) -> None:
        self._projects: dict[str, Mapping[str, Any]] = {}

    def add(self, name: str, project: Mapping[str, Any] | None = None) -> None:
        """Note a distribution; `project` is `[project]` of its `pyproject.toml`, where that is known."""
        key = normalise_name(name)
        self._projects[key] = project or self._projects.get(key, {})

    def without(self, requirements: Sequence[str]) -> tuple[str, ...]:
        """Return the requirements that are left to install; extras of what is in place are replaced by their own."""
        return tuple(dict.fromkeys(self._left(requirements, set())))

    def _left(self, requirements: Sequence[str], seen: set[tuple[str, str]]) -> Iterator[str]:
        for line in requirements:
            name = name_of(line)
            if name not in self._projects:
                yield line
                continue
            for extra in _extras_of(line):
                if (name, extra) not in seen:
                    seen.add((name, extra))
                    yield from self._left(_lines_of_extra(self._projects[name], extra), seen)


def import_roots(directory: Path, project: Mapping[str, Any]) -> list[Path]:
    """Return the directories from which a bundle's own package is imported: `src/`, `lib/`, or its own root.

    The root counts when a package of the project's name lies there, or any other one and there is no `src/` or `lib/`.
    """
    roots = [root for root in (directory / "src", directory / "lib") if root.is_dir()]
    own = normalise_name(str(project.get("name") or "")).replace("-", "_")
    if (own and (directory / own / "__init__.py").is_file()) or (not roots and _has_package(directory)):
        roots.append(directory)
    return roots


def _has_package(directory: Path) -> bool:
    return any(file.parent.name not in _NOT_FOR_IMPORT for file in directory.glob("*/__init__.py"))


def _extras_of(requirement: str) -> list[str]:
    found = _EXTRAS.match(requirement)
    return [normalise_name(extra.strip()) for extra in found[1].split(",")] if found else []


def _lines_of_extra(project: Mapping[str, Any], extra: str) -> list[str]:
    optional = project.get("optional-dependencies")
    groups = optional.items() if isinstance(optional, dict) else ()
    found = [group for name, group in groups if normalise_name(name) == extra and isinstance(group, list)]
    return [normalise(line) for group in found for line in group if isinstance(line, str)]


# Activations that failed in this process: a session that asks again gets the same answer at once.
#
# Preparing a bundle tries again, and so does a caller of `forget_failures`.


Key = tuple[Path, Path | None, str, str]
"""The cache, where relative sources count from, module and source."""

_failures: dict[Key, str] = {}


def note_failure(key: Key, error: Exception) -> None:
    _failures[key] = str(error)


def note_success(key: Key) -> None:
    _failures.pop(key, None)


def find_failure(key: Key) -> str | None:
    """Return why an activation failed, None if it did not, or was not tried."""
    return _failures.get(key)


def forget_failures() -> None:
    """Let everything be tried again that has failed so far."""
    _failures.clear()
