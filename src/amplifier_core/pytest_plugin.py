"""A pytest plugin for module repositories: finds the module under test and offers it, mounted, as fixtures.

It is active wherever this distribution is installed. Elsewhere than in a module's repository it only adds fixtures.
"""

import importlib.util
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .boundary import settle
from .packages import FOLDER_PREFIX, PACKAGE_PREFIX, find_package, type_from_prefix
from .testing import EventRecorder, MockContextManager, MockCoordinator, MockProvider, MockTool

try:
    from pytest_asyncio import fixture as async_fixture
except ImportError:  # pytest itself must go on working; only the fixtures that mount a module need it
    async_fixture = pytest.fixture  # type: ignore[assignment] # used in the same way

Dependencies = tuple[MockContextManager, dict[str, MockProvider], dict[str, MockTool], EventRecorder]

_FOLDER = re.compile(rf"{FOLDER_PREFIX}(\w+)-")
_PACKAGE = re.compile(rf"{PACKAGE_PREFIX}([^\W_]+)_")
_SHIPPED_TESTS = re.compile(r"amplifier_core/validation/(behavioral|structural)/test_(\w+)\.py$")


@dataclass(frozen=True)
class ModuleUnderTest:
    """The package of the module whose tests are run, and its type as far as its name tells."""

    path: Path | None = None
    module_type: str | None = None


_detected = pytest.StashKey[ModuleUnderTest]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("amplifier").addoption(
        "--module-path", default=None, metavar="PATH", help="package directory of the Amplifier module under test"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "module_validation: checks an Amplifier module against its contract")
    config.stash[_detected] = _detect(config)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run only those tests shipped in this package that are for the type of the module under test."""
    detected = config.stash[_detected]
    for item in items:
        shipped = _SHIPPED_TESTS.search(item.path.as_posix())
        if shipped is None:
            continue
        if detected.path is None:
            if "module_path" in getattr(item, "fixturenames", ()):
                item.add_marker(pytest.mark.skip(reason="Not running in Amplifier module context"))
        elif detected.module_type not in (None, shipped[2]):
            reason = f"Test for different module type (detected: {detected.module_type})"
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def module_path(request: pytest.FixtureRequest) -> Path | None:
    """The package directory of the module under test, None outside a module's repository."""
    detected = request.config.stash[_detected]
    if request.config.getoption("--module-path"):
        return detected.path
    folder = _module_folder(request.path)
    if folder is None:
        return detected.path
    return _first_package(folder, PACKAGE_PREFIX) or _first_package(folder, "amplifier_") or detected.path


@pytest.fixture
def module_type(request: pytest.FixtureRequest) -> str | None:
    """The type of the module under test: provider, tool, hook, orchestrator or context."""
    folder = _module_folder(request.path)
    if folder is None:
        return request.config.stash[_detected].module_type
    return type_from_prefix(folder.name.removeprefix(FOLDER_PREFIX))


@pytest.fixture
def is_module_context(module_path: Path | None) -> bool:
    """True if there is a module under test."""
    return module_path is not None


@pytest.fixture
def coordinator() -> MockCoordinator:
    """A fresh coordinator, the one the module fixtures mount on."""
    return MockCoordinator()


@pytest.fixture
def mock_deps() -> Dependencies:
    """What an orchestrator is given for a turn: context, providers, tools, hooks."""
    tool = MockTool(name="test_tool", output="test result")
    return MockContextManager(), {"default": MockProvider()}, {tool.name: tool}, EventRecorder()


@async_fixture
async def provider_module(module_path: Path | None, coordinator: MockCoordinator) -> AsyncIterator[Any]:
    """The provider that the module mounts."""
    async with _mounted(module_path, coordinator):
        yield _first(coordinator.mount_points["providers"], "No provider was mounted")


@async_fixture
async def tool_module(module_path: Path | None, coordinator: MockCoordinator) -> AsyncIterator[Any]:
    """The first tool that the module mounts."""
    async with _mounted(module_path, coordinator):
        yield _first(coordinator.mount_points["tools"], "No tool was mounted")


@async_fixture
async def orchestrator_module(module_path: Path | None, coordinator: MockCoordinator) -> AsyncIterator[Any]:
    """The orchestrator that the module mounts."""
    async with _mounted(module_path, coordinator):
        yield _occupant(coordinator.mount_points["orchestrator"], "No orchestrator was mounted")


@async_fixture
async def context_module(module_path: Path | None, coordinator: MockCoordinator) -> AsyncIterator[Any]:
    """The context manager that the module mounts."""
    async with _mounted(module_path, coordinator):
        yield _occupant(coordinator.mount_points["context"], "No context manager was mounted")


@async_fixture
async def hook_cleanup(
    module_path: Path | None, coordinator: MockCoordinator
) -> AsyncIterator[Callable[[], Any] | None]:
    """What the module's `mount` returned to take its hooks back, None when it returned nothing callable."""
    async with _mounted(module_path, coordinator) as cleanup:
        yield cleanup


@asynccontextmanager
async def _mounted(path: Path | None, coordinator: MockCoordinator) -> AsyncIterator[Callable[[], Any] | None]:
    """Mount the module for the length of a test; yields the cleanup that `mount` returned."""
    if path is None:
        pytest.skip("No module path detected")
    with _fresh_module(path) as module:
        mount = getattr(module, "mount", None)
        if mount is None:
            raise AttributeError("Module has no mount() function")
        returned = await mount(coordinator, {})
        is_instance = any(returned is entry["module"] for entry in coordinator.mount_history)
        cleanup = returned if callable(returned) and not is_instance else None
        yield cleanup
        if cleanup is not None:
            await settle(cleanup())


@contextmanager
def _fresh_module(path: Path) -> Iterator[ModuleType]:
    """Execute a package's `__init__.py`, or a file, again under its own name.

    Its submodules are those that the tests import: a class or function patched there is patched here.
    """
    source = path / "__init__.py" if path.is_dir() else path
    if not source.is_file():
        raise FileNotFoundError(f"Module not found at {source}")
    name = path.name if path.is_dir() else path.stem
    spec = importlib.util.spec_from_file_location(name, source)
    if spec is None or spec.loader is None:
        raise ImportError(f"{source} is not a Python file")
    before = dict(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module
    finally:
        if str(path.parent) in sys.path:
            sys.path.remove(str(path.parent))
        for key in [key for key in sys.modules if key == name or key.startswith(f"{name}.")]:
            if key in before:
                sys.modules[key] = before[key]
            else:
                del sys.modules[key]


def _detect(config: pytest.Config) -> ModuleUnderTest:
    """Look for the module in the option, the current directory, the root directory and the test arguments."""
    given = config.getoption("--module-path")
    if given:
        path = config.invocation_params.dir / given
        package = find_package(path) or path
        return ModuleUnderTest(package, _detect_from(path).module_type or _type_in(_PACKAGE, package.name))
    arguments = [config.invocation_params.dir / argument.partition("::")[0] for argument in config.args]
    starts = [Path.cwd(), config.rootpath, *(path for path in arguments if path.exists())]
    found = (_detect_from(start if start.is_dir() else start.parent) for start in starts)
    return next((module for module in found if module.path is not None), ModuleUnderTest())


def _detect_from(start: Path) -> ModuleUnderTest:
    start = start.absolute()
    for folder in (start, *start.parents):
        module_type = _type_in(_FOLDER, folder.name)
        package = _first_package(folder, PACKAGE_PREFIX) if module_type is not None else None
        if package is not None:
            return ModuleUnderTest(package, module_type)
    package = _first_package(start, PACKAGE_PREFIX)
    return ModuleUnderTest(package, _type_in(_PACKAGE, package.name)) if package is not None else ModuleUnderTest()


def _type_in(pattern: re.Pattern[str], name: str) -> str | None:
    word = pattern.match(name)
    return (type_from_prefix(f"{word[1]}-") or word[1]) if word is not None else None


def _module_folder(path: Path) -> Path | None:
    return next((parent for parent in path.parents if parent.name.startswith(FOLDER_PREFIX)), None)


def _first_package(folder: Path, prefix: str) -> Path | None:
    candidates = sorted(folder.glob(f"{prefix}*"))
    return next((candidate for candidate in candidates if (candidate / "__init__.py").is_file()), None)


def _first(mounted: dict[str, Any], complaint: str) -> Any:
    return _occupant(next(iter(mounted.values()), None), complaint)


def _occupant(mounted: Any, complaint: str) -> Any:
    if mounted is None:
        pytest.fail(complaint)
    return mounted
