"""The contract of tools, held against every tool in `modules/`: a new one inherits these tests by being there."""

import copy
import importlib
import inspect
import json
import logging
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from config_keys import config_keys_of
from module_folders import folders_of_type, package_of

from amplifier_core import HookRegistry, Tool, ToolResult
from amplifier_core.loader import ModuleLoader
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import ToolValidator
from amplifier_core.validation.behavioral import ToolBehaviorTests

ROOT = Path(__file__).parents[2]
MOUNTS_NOTHING = {"tool-mcp"}  # what it offers are the tools of servers, and there are none without configuration
STRICT_KEYS = {
    "safety_profile",
    "search_timeout",
    "max_results",
    "search_engine",
    "engine",
}  # guards, and what nobody can guess
INFRASTRUCTURE = {"id": "x", "module": "x", "source": "x", "instance_id": "x", "name": "x", "priority": 1}
ODD_INPUTS: list[Any] = [None, [], "text", 7, {"_tool_call_id": "x"}]


TOOLS = folders_of_type("tool")


@pytest.fixture(params=TOOLS, ids=lambda folder: folder.name)
def folder(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


@pytest.fixture
def module_id(folder: Path) -> str:
    return folder.name


@pytest.fixture
def module(folder: Path) -> ModuleType:
    return importlib.import_module(package_of(folder).name)


@pytest.fixture
def offers_tools(module_id: str) -> bool:
    return module_id not in MOUNTS_NOTHING


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a module writes by default are written here."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def readme(folder: Path) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def entry(readme: str, module_id: str) -> dict[str, Any]:
    """The mount-plan entry that the README shows: a block of JSON, alone or within a plan."""
    for block in re.findall(r"^```json\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL):
        shown = json.loads(block)
        candidates = [shown, *(shown.get("tools") or ())] if isinstance(shown, dict) else []
        for candidate in candidates:
            if candidate.get("module") == module_id:
                return dict(candidate)
    pytest.fail(f"the README of {module_id} shows no mount-plan entry as a block of JSON")


@pytest.fixture
async def config_keys(module_id: str, tmp_path: Path) -> set[str]:
    """Every key that the module reads from its configuration."""
    return await config_keys_of(module_id, tmp_path)


async def mounted(module: ModuleType, config: Any = None, coordinator: Any = None) -> dict[str, Any]:
    """Mount a module and return its tools."""
    coordinator = coordinator or MockCoordinator()
    await module.mount(coordinator, config)
    tools: dict[str, Any] = coordinator.get("tools")
    return tools


async def clean_up(cleanup: Any) -> None:
    """Run what `mount` returned, if anything."""
    if cleanup is not None:
        await cleanup()


@pytest.mark.parametrize(
    "expectation", [name for name in vars(ToolBehaviorTests) if name.startswith("test_") and "mount" not in name]
)
async def test_every_tool_behaves_as_the_kernel_asks(module: ModuleType, expectation: str) -> None:
    for tool in (await mounted(module)).values():
        await getattr(ToolBehaviorTests(), expectation)(tool)


async def test_it_passes_the_kernels_validator(folder: Path, offers_tools: bool) -> None:
    result = await ToolValidator().validate(folder)

    assert [check.message for check in result.checks if not check.passed and check.severity == "error"] == []
    assert result.passed
    assert not offers_tools or [check.message for check in result.checks if not check.passed] == []


@pytest.mark.parametrize("config", [{}, None], ids=["empty", "none"])
async def test_it_mounts_without_configuration(module: ModuleType, config: Any, offers_tools: bool) -> None:
    tools = await mounted(module, config)

    assert bool(tools) is offers_tools
    assert all(isinstance(tool, Tool) for tool in tools.values())


async def test_configuration_may_be_left_out(module: ModuleType, offers_tools: bool) -> None:
    coordinator = MockCoordinator()
    await module.mount(coordinator)

    assert bool(coordinator.get("tools")) is offers_tools


async def test_it_returns_nothing_or_a_cleanup_that_can_run_twice(module: ModuleType) -> None:
    cleanup = await module.mount(MockCoordinator(), {})

    assert cleanup is None or inspect.iscoroutinefunction(cleanup)
    await clean_up(cleanup)
    await clean_up(cleanup)


async def test_tools_are_mounted_under_their_own_names(module: ModuleType) -> None:
    coordinator = MockCoordinator()
    tools = await mounted(module, {}, coordinator)

    assert {name: tool.name for name, tool in tools.items()} == {name: name for name in tools}
    assert {entry["mount_point"] for entry in coordinator.mount_history} <= {"tools"}
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in tools)


async def test_what_only_reads_may_be_repeated_after_a_crash(module: ModuleType) -> None:
    for tool in (await mounted(module)).values():
        declared = tool.retry_of({}) if hasattr(tool, "retry_of") else getattr(tool, "retry", "never")
        assert declared in ("safe", "check", "never")
        assert declared == "safe" or not tool.effects <= {"read"}
        assert declared != "check" or inspect.iscoroutinefunction(tool.check)


def test_its_entry_point_leads_to_mount(folder: Path, module: ModuleType) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    value = project["entry-points"]["amplifier.modules"][folder.name]
    package, _, attribute = value.partition(":")

    mount = getattr(importlib.import_module(package), attribute)

    assert mount is module.mount
    assert inspect.iscoroutinefunction(mount)
    assert mount.__module__ == module.__name__


async def test_a_session_mounts_it_by_path(folder: Path, module_id: str, offers_tools: bool) -> None:
    coordinator = MockCoordinator()
    loader = ModuleLoader(coordinator)

    mount = await loader.load(module_id, {}, source_hint=str(folder), coordinator=coordinator)
    cleanup = await mount(coordinator)

    assert bool(coordinator.get("tools")) is offers_tools
    await clean_up(cleanup)
    loader.cleanup()


class BareCoordinator:
    """Can be mounted on, and nothing else."""

    def __init__(self, **attributes: Any) -> None:
        self.tools: dict[str, Any] = {}
        self.__dict__.update(attributes)

    async def mount(self, mount_point: str, module: Any, name: str | None = None) -> None:
        self.tools[name or module.name] = module


class BrokenSink:
    """Hooks that can be told nothing."""

    async def emit(self, event: str, data: Any) -> None:
        raise RuntimeError("broken")


def _raise(*_: Any) -> Any:
    raise RuntimeError("not offered")


STUBS: dict[str, dict[str, Any]] = {
    "bare": {},
    "without hooks": {"hooks": None, "get_capability": lambda name: None},
    "hooks alone": {"hooks": HookRegistry()},
    "broken sink": {"hooks": BrokenSink()},
    "raising": {"get_capability": _raise, "register_contributor": _raise, "get": _raise},
    "nothing": dict.fromkeys(["config", "session_id", "session", "cancellation", "session_state", "get_capability"]),
}


@pytest.mark.parametrize("stub", STUBS)
async def test_it_mounts_on_a_stub_and_its_tools_still_answer(
    module: ModuleType, stub: str, offers_tools: bool
) -> None:
    coordinator = BareCoordinator(**STUBS[stub])

    cleanup = await module.mount(coordinator, {})
    answers = [await tool.execute({}) for tool in coordinator.tools.values()]

    assert bool(coordinator.tools) is offers_tools
    assert all(isinstance(answer, ToolResult) for answer in answers)
    await clean_up(cleanup)


async def test_two_mounts_are_independent(module: ModuleType) -> None:
    one, other = MockCoordinator(), MockCoordinator()
    cleanups = [await module.mount(coordinator, {}) for coordinator in (one, other)]

    await clean_up(cleanups[0])

    for name, tool in other.get("tools").items():
        assert tool is not one.get("tools").get(name)
        assert isinstance(await tool.execute({}), ToolResult)
    await clean_up(cleanups[1])


async def test_every_tool_describes_itself_and_its_input(module: ModuleType) -> None:
    for name, tool in (await mounted(module)).items():
        schema = tool.input_schema
        assert tool.description.strip(), name
        assert tool.get_schema() == schema, name
        assert schema["type"] == "object", name
        assert set(schema.get("required", ())) <= set(schema["properties"]), name
        assert all(rule.get("description") for rule in schema["properties"].values()), name
        assert json.loads(json.dumps(schema)) == schema, name


async def test_nothing_where_something_is_required_fails_with_a_result(module: ModuleType) -> None:
    for name, tool in (await mounted(module)).items():
        if tool.input_schema.get("required"):
            result = await tool.execute({})
            assert_failure(result, name)
            assert result.error["code"] == "invalid_input", name


@pytest.mark.parametrize("given", ODD_INPUTS, ids=str)
async def test_odd_input_is_answered_with_a_failed_result(module: ModuleType, given: Any) -> None:
    for name, tool in (await mounted(module)).items():
        if tool.input_schema.get("required") or not isinstance(given, dict):
            result = await tool.execute(copy.copy(given))
            assert_failure(result, name)
            assert result.error["code"] == "invalid_input", name


async def test_values_of_the_wrong_type_are_invalid_input(module: ModuleType) -> None:
    wrong = {"string": 3, "integer": True, "number": "1", "boolean": "yes", "array": "a", "object": []}
    fitting = {"string": "x", "integer": 1, "number": 1, "boolean": True, "array": [], "object": {}}
    for name, tool in (await mounted(module)).items():
        properties, required = tool.input_schema["properties"], tool.input_schema.get("required", ())
        for key, rule in properties.items():
            if not isinstance(rule.get("type"), str):
                continue
            others = {other: _fitting(properties[other], fitting) for other in required if other != key}
            result = await tool.execute({**others, key: wrong[rule["type"]]})
            assert_failure(result, f"{name}.{key}")
            assert result.error["code"] == "invalid_input", f"{name}.{key}"


def _fitting(rule: dict[str, Any], fitting: dict[str, Any]) -> Any:
    return rule["enum"][0] if "enum" in rule else fitting[rule["type"]]


def assert_failure(result: Any, name: str) -> None:
    assert isinstance(result, ToolResult), name
    assert not result.success, name
    assert result.error is not None, name
    assert isinstance(result.error["message"], str), name
    assert re.fullmatch(r"[a-z][a-z_]*", result.error["code"]), name
    assert result.output == result.error["message"], name


async def test_its_events_are_announced_and_in_the_readme(module: ModuleType, readme: str) -> None:
    coordinator = MockCoordinator()
    await module.mount(coordinator, {})

    announced = [
        event for events in await coordinator.collect_contributions("observability.events") for event in events
    ]

    assert announced
    assert [event for event in announced if f"`{event}`" not in readme] == []


async def test_mounting_is_logged_for_operators(
    module: ModuleType, module_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await module.mount(MockCoordinator(), {})

    assert [record.levelname for record in caplog.records if module_id in record.message] == ["INFO"]


async def test_the_keys_of_the_infrastructure_are_ignored_silently(
    module: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    await module.mount(MockCoordinator(), dict(INFRASTRUCTURE))

    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_an_unknown_key_is_warned_about_with_the_key_it_resembles(
    module: ModuleType, config_keys: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    known = max(sorted(config_keys), key=len, default="")

    await module.mount(MockCoordinator(), {f"{known}x": 1})

    (warning,) = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert f"'{known}x'" in warning
    assert not known or repr(known) in warning


@pytest.mark.parametrize("value", [object(), -1, "", "${NEVER_SET}", [None]], ids=lambda value: type(value).__name__)
async def test_no_value_fails_the_mount_but_of_a_few_strict_keys(
    module: ModuleType, config_keys: set[str], offers_tools: bool, value: Any
) -> None:
    for key in sorted(config_keys):
        coordinator = MockCoordinator()
        try:
            await clean_up(await module.mount(coordinator, {key: value}))
        except ValueError:
            assert key in STRICT_KEYS
        else:
            assert bool(coordinator.get("tools")) is offers_tools, key


async def test_the_configuration_it_is_given_is_never_changed(module: ModuleType, entry: dict[str, Any]) -> None:
    config = entry.get("config", {})
    before = copy.deepcopy(config)
    coordinator = MockCoordinator()

    cleanup = await module.mount(coordinator, config)
    for tool in coordinator.get("tools").values():
        await tool.execute({})
    await clean_up(cleanup)

    assert config == before


async def test_the_readmes_mount_plan_entry_mounts_without_a_warning(
    folder: Path, entry: dict[str, Any], config_keys: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = MockCoordinator()
    loader = ModuleLoader(coordinator)

    mount = await loader.load(entry["module"], entry.get("config"), source_hint=str(folder), coordinator=coordinator)
    cleanup = await mount(coordinator)

    assert set(entry.get("config", {})) <= config_keys
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
    await clean_up(cleanup)
    loader.cleanup()


IMPORTER = """
import importlib, json, os, sys, threading
sys.path[:0] = json.loads(sys.argv[1])
import asyncio, amplifier_core, amplifier_kit
found = {}
for name in json.loads(sys.argv[2]):
    before = set(sys.modules)
    importlib.import_module(name)
    found[name] = {
        "packages": sorted({module.partition(".")[0] for module in set(sys.modules) - before}),
        "threads": threading.active_count(),
        "files": os.listdir("."),
    }
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def imports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What importing each module does to a fresh process in an empty directory."""
    empty = tmp_path_factory.mktemp("empty")
    paths = json.dumps([str(folder) for folder in TOOLS])
    names = json.dumps([package_of(folder).name for folder in TOOLS])
    done = subprocess.run(
        [sys.executable, "-c", IMPORTER, paths, names], cwd=empty, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    found: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return found


def test_importing_it_has_no_side_effects(folder: Path, imports: dict[str, dict[str, Any]]) -> None:
    seen = imports[package_of(folder).name]

    foreign = (
        set(seen["packages"]) - sys.stdlib_module_names - {package_of(folder).name, "amplifier_kit", "amplifier_system"}
    )
    assert {name for name in foreign if not name.startswith("amplifier_core")} == set()
    assert (seen["threads"], seen["files"]) == (1, [])


def test_tools_are_found() -> None:
    assert {folder.name for folder in TOOLS} >= {"tool-filesystem", "tool-search"}
