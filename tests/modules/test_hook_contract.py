"""The contract of hooks, held against every hook in `modules/`: a new one inherits these tests by being there."""

import ast
import copy
import importlib
import inspect
import json
import logging
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from module_folders import folders_of_type, package_of

from amplifier_core import HookRegistry, HookResult, ModuleCoordinator
from amplifier_core.events import ALL_EVENTS
from amplifier_core.loader import ModuleLoader
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import HookValidator
from amplifier_core.validation.behavioral import HookBehaviorTests

ROOT = Path(__file__).parents[2]
GUARDS = {
    **{"hooks-approval": "rules", "hooks-mode": "search_paths", "hooks-redaction": "rules"},
    **{"hook-shell": "directories"},
}
"""Modules that ignore `enabled_events` and mount whatever their configuration, each with a key that takes a list."""
AWAITS_SESSION_END = {"hooks-logging"}  # cleaned up before it, they still handle `session:end`
ODD_DATA = [None, {}, [], "text", {"tool_name": 7, "tool_input": "x", "messages": 1, "error": []}]


HOOKS = folders_of_type("hook")


@pytest.fixture(params=HOOKS, ids=lambda folder: folder.name)
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
def module_path(folder: Path) -> Path:
    """What the kernel's own suites mount."""
    return package_of(folder)


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
        for candidate in (shown, *(shown.get("hooks") or ())):
            if candidate.get("module") == module_id:
                return dict(candidate)
    pytest.fail(f"the README of {module_id} shows no mount-plan entry as a block of JSON")


def handlers_of(coordinator: Any) -> set[str]:
    return {event for event, names in coordinator.hooks.list_handlers().items() if names}


def expected_after_cleanup(module_id: str) -> set[str]:
    return {"session:end"} if module_id in AWAITS_SESSION_END else set()


class TestBehaviour(HookBehaviorTests):
    """What the kernel asks of every hook."""


async def test_it_passes_the_kernels_validator(folder: Path) -> None:
    result = await HookValidator().validate(folder)

    assert [check.message for check in result.checks if not check.passed] == []


@pytest.mark.parametrize("config", [{}, None], ids=["empty", "none"])
async def test_it_mounts_without_configuration_and_returns_a_cleanup(module: ModuleType, config: Any) -> None:
    coordinator = MockCoordinator()

    cleanup = await module.mount(coordinator, config)

    assert handlers_of(coordinator)
    assert callable(cleanup)


async def test_configuration_may_be_left_out(module: ModuleType) -> None:
    assert callable(await module.mount(MockCoordinator()))


def test_its_entry_point_leads_to_mount(folder: Path, module: ModuleType) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    value = project["entry-points"]["amplifier.modules"][folder.name]
    package, _, attribute = value.partition(":")

    mount = getattr(importlib.import_module(package), attribute)

    assert mount is module.mount
    assert inspect.iscoroutinefunction(mount)
    assert mount.__module__ == module.__name__, "the kernel looks for on_session_ready beside it"


async def test_a_session_mounts_it_by_path(folder: Path, module_id: str) -> None:
    coordinator = MockCoordinator()
    loader = ModuleLoader(coordinator)

    mount = await loader.load(module_id, {}, source_hint=str(folder), coordinator=coordinator)
    cleanup = await mount(coordinator)

    assert handlers_of(coordinator)
    cleanup()
    loader.cleanup()


async def test_cleanup_is_synchronous_idempotent_and_leaves_no_handler(module: ModuleType, module_id: str) -> None:
    coordinator = MockCoordinator()
    cleanup = await module.mount(coordinator, {})

    outcomes = [cleanup(), cleanup()]

    assert outcomes == [None, None]
    assert handlers_of(coordinator) == expected_after_cleanup(module_id)


async def test_after_session_end_cleanup_leaves_no_handler_at_all(module: ModuleType) -> None:
    coordinator = MockCoordinator()
    cleanup = await module.mount(coordinator, {})

    await coordinator.hooks.emit("session:end", {"session_id": "test-session"})
    cleanup()

    assert handlers_of(coordinator) == set()


async def test_session_end_after_cleanup_leaves_no_handler_either(module: ModuleType) -> None:
    coordinator = MockCoordinator()
    cleanup = await module.mount(coordinator, {})

    cleanup()
    await coordinator.hooks.emit("session:end", {"session_id": "test-session"})

    assert handlers_of(coordinator) == set()


async def test_it_takes_back_only_its_own_handlers(module: ModuleType) -> None:
    async def other(event: str, data: dict[str, Any]) -> None: ...

    alone, shared = MockCoordinator(), MockCoordinator()
    await module.mount(alone, {})
    events = handlers_of(alone) - {"session:end"}
    for event in events:
        shared.hooks.register(event, other, priority=1000, name="other")
    first, _ = [await module.mount(shared, {}) for _ in range(2)]

    first()

    for event in events:
        names = shared.hooks.list_handlers(event)[event]
        assert sorted(names) == sorted([*alone.hooks.list_handlers(event)[event], "other"])


class FailingRegistry(HookRegistry):
    """A registry that cannot take a handler back."""

    def register(self, *args: Any, **options: Any) -> Callable[[], None]:
        super().register(*args, **options)

        def unregister() -> None:
            raise RuntimeError("no")

        return unregister


def stubs() -> Iterator[tuple[str, Any]]:
    nothing = dict.fromkeys(
        ["register_contributor", "register_capability", "get_capability", "collect_contributions", "session_state"]
    )
    yield "bare object", object()
    yield "without hooks", SimpleNamespace(hooks=None, get=lambda point: None)
    yield "hooks alone", SimpleNamespace(hooks=HookRegistry())
    yield "hooks by get", SimpleNamespace(get=lambda point: HookRegistry() if point == "hooks" else None)
    yield "nothing else", SimpleNamespace(hooks=HookRegistry(), session_id=None, cancellation=None, **nothing)
    yield "failing registry", SimpleNamespace(hooks=FailingRegistry())
    yield "coordinator without session", ModuleCoordinator()


@pytest.mark.parametrize("name", [name for name, _ in stubs()])
async def test_it_mounts_on_a_stub_and_cleans_up(module: ModuleType, name: str) -> None:
    coordinator = dict(stubs())[name]

    cleanup = await module.mount(coordinator, {})
    if hasattr(module, "on_session_ready"):
        await module.on_session_ready(coordinator)

    assert [cleanup(), cleanup()] == [None, None]


@pytest.mark.parametrize("coordinator", [object(), SimpleNamespace(hooks=None)], ids=["bare", "none"])
async def test_without_a_hook_registry_it_warns(
    module: ModuleType, module_id: str, coordinator: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await module.mount(coordinator, {})

    assert [record for record in caplog.records if record.levelname == "WARNING" and module_id in record.message]


@pytest.mark.parametrize("data", ODD_DATA)
async def test_every_handler_answers_odd_data_with_a_hook_result(module: ModuleType, data: Any) -> None:
    registered: list[tuple[str, Any]] = []

    class Registry(HookRegistry):
        def register(self, event: str, handler: Any, priority: int = 0, name: str | None = None) -> Any:
            registered.append((event, handler))
            return super().register(event, handler, priority, name)

    coordinator = MockCoordinator()
    coordinator.hooks = Registry()
    cleanup = await module.mount(coordinator, {})

    answers = [await handler(event, copy.copy(data)) for event, handler in registered]

    assert answers
    assert {type(answer) for answer in answers} == {HookResult}
    cleanup()


async def test_a_modified_event_keeps_its_session(module: ModuleType) -> None:
    coordinator = MockCoordinator()
    coordinator.hooks.set_default_fields(session_id="s1", parent_id=None)
    await module.mount(coordinator, {})

    for event in handlers_of(coordinator):
        result = await coordinator.hooks.emit(event, {"tool_name": "a", "available_tools": ["a", "b"]})
        assert result.action != "continue" or result.data["session_id"] == "s1"


async def test_events_it_emits_beyond_the_kernels_are_announced(module: ModuleType, folder: Path) -> None:
    coordinator = MockCoordinator()
    await module.mount(coordinator, {})

    announced = [
        event for events in await coordinator.collect_contributions("observability.events") for event in events
    ]
    again = [event for events in await coordinator.collect_contributions("observability.events") for event in events]

    assert announced == again
    assert emitted_by(folder) - set(ALL_EVENTS) <= set(announced)


def emitted_by(folder: Path) -> set[str]:
    """Return the event names in a module's calls of `emit`, given as text or as a constant of its own."""
    trees = [ast.parse(file.read_text(encoding="utf-8")) for file in package_of(folder).rglob("*.py")]
    constants = {
        ast.unparse(node.targets[0]): node.value.value
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }
    calls = [
        node.args[0]
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2].lstrip("_") == "emit" and node.args
    ]
    names = {
        argument.value if isinstance(argument, ast.Constant) else constants.get(ast.unparse(argument), "")
        for argument in calls
    }
    return {name for name in names if isinstance(name, str) and ":" in name}


async def test_enabled_events_limits_its_handlers(
    module: ModuleType, module_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    everything, limited, none = MockCoordinator(), MockCoordinator(), MockCoordinator()
    await module.mount(everything, {})
    known = sorted(handlers_of(everything))

    await module.mount(limited, {"enabled_events": [known[0][:-1] + "?"]})
    await module.mount(none, {"enabled_events": []})

    if module_id in GUARDS:
        assert handlers_of(limited) == handlers_of(none) == set(known)
        assert [record for record in caplog.records if "enabled_events" in record.message]
    else:
        assert known[0] in handlers_of(limited)
        assert handlers_of(limited) < set(known) or len(known) == 1
        assert handlers_of(none) == set()


async def test_a_value_that_does_not_fit_is_refused_or_by_a_guard_replaced(
    module: ModuleType, module_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = MockCoordinator()
    key = GUARDS.get(module_id, "enabled_events")
    if module_id in GUARDS:
        await module.mount(coordinator, {key: 7})
        refusal = next(record.message for record in caplog.records if record.levelname == "ERROR")
        assert handlers_of(coordinator)
    else:
        with pytest.raises(ValueError, match=module_id) as error:
            await module.mount(coordinator, {key: 7})
        refusal = str(error.value)
        assert handlers_of(coordinator) == set()

    assert all(part in refusal for part in (module_id, repr(key), "7", "allowed"))


async def test_unknown_keys_are_named_in_one_warning(
    module: ModuleType, module_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    await module.mount(MockCoordinator(), {"colour": "red", "enabled_event": []})

    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert all(part in warning for part in (module_id, "colour", "enabled_event"))


async def test_the_configuration_it_is_given_is_never_changed(module: ModuleType, entry: dict[str, Any]) -> None:
    config = entry.get("config", {})
    before = copy.deepcopy(config)
    coordinator = MockCoordinator()

    cleanup = await module.mount(coordinator, config)
    for event in handlers_of(coordinator):
        await coordinator.hooks.emit(event, {"tool_name": "bash", "tool_input": {"command": "ls"}})
    cleanup()

    assert config == before


async def test_registration_is_logged_once_for_operators_and_per_handler_for_debugging(
    module: ModuleType, module_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = MockCoordinator()

    with caplog.at_level(logging.DEBUG):
        await module.mount(coordinator, {})

    mine = [record for record in caplog.records if module_id in record.message]
    assert len([record for record in mine if record.levelname == "INFO"]) == 1
    registered = sum(len(names) for names in coordinator.hooks.list_handlers().values())
    assert len([record for record in mine if record.levelname == "DEBUG" and "handler" in record.message]) == registered


async def test_the_readmes_mount_plan_entry_mounts(
    folder: Path, entry: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    coordinator = MockCoordinator()
    loader = ModuleLoader(coordinator)

    mount = await loader.load(entry["module"], entry.get("config"), source_hint=str(folder), coordinator=coordinator)
    cleanup = await mount(coordinator)

    assert handlers_of(coordinator)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
    cleanup()
    loader.cleanup()


async def test_two_sessions_in_one_process_have_handlers_of_their_own(module: ModuleType) -> None:
    one, other = MockCoordinator(), MockCoordinator()
    for coordinator in (one, other):
        await module.mount(coordinator, {})
    other.register_contributor("observability.events", "tool-x", lambda: ["x:happened"])

    if hasattr(module, "on_session_ready"):
        await module.on_session_ready(one)

    assert "x:happened" not in handlers_of(one) | handlers_of(other)


def test_hooks_are_found() -> None:
    assert {folder.name for folder in HOOKS} >= {"hooks-logging", "hooks-redaction"}
