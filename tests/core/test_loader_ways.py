"""Every way to load a module, and how what is installed or on the search path is found."""

import inspect
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator, ModuleLoader, module_sources
from amplifier_core.loader import TYPE_TO_MOUNT_POINT, module_failure_reason


@pytest.fixture(params=["entry point", "resolver", "file URL", "absolute path", "search path", "environment", "import"])
def way(request: pytest.FixtureRequest, modules: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Each way to load a module, as a function: a written module → a loader that finds it and the hint it needs."""

    def prepare(module: Any) -> tuple[ModuleLoader, Any]:
        match request.param:
            case "entry point":
                modules.install(module)
            case "import":
                modules.install(module, entry_points={})
            case "resolver":
                return modules.loader(), None
            case "file URL":
                return ModuleLoader(), module.folder.as_uri()
            case "absolute path":
                return ModuleLoader(), str(module.folder)
            case "search path":
                return ModuleLoader(search_paths=[module.folder.parent]), None
            case "environment":
                monkeypatch.setenv("AMPLIFIER_MODULES", f"/nowhere:{module.folder.parent}")
        return ModuleLoader(), None

    return prepare


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool", "hook", "resolver"])
async def test_a_module_of_any_type_loads_every_way(modules: Any, way: Callable[..., Any], kind: str) -> None:
    module = modules.write(kind)
    loader, hint = way(module)
    config = {"live": object()}

    coordinator = await modules.mounted_by(loader, module, config, source_hint=hint)

    assert module.code.mounts == [config]
    assert module.code.mounts[0] is config
    if kind == "hook":
        assert coordinator.hooks.list_handlers("tool:pre") == {"tool:pre": [module.name]}
    else:
        assert coordinator.get_mounted(TYPE_TO_MOUNT_POINT[kind]) != []


async def test_mount_runs_once_for_each_mount_and_never_for_a_check(modules: Any, way: Callable[..., Any]) -> None:
    module = modules.write("tool")
    loader, hint = way(module)

    mount = await loader.load(module.module_id, {}, source_hint=hint)
    assert module.times_mounted == 0
    await mount(ModuleCoordinator())
    assert module.times_mounted == 1
    await modules.mounted_by(loader, module, source_hint=hint)
    assert module.times_mounted == 2


@pytest.mark.parametrize("given", [None, {}])
async def test_a_module_always_gets_a_dict(modules: Any, way: Callable[..., Any], given: Any) -> None:
    module = modules.write("tool")
    loader, hint = way(module)

    await modules.mounted_by(loader, module, given, source_hint=hint)

    assert module.code.mounts == [{}]


async def test_the_closure_is_a_coroutine_function_that_returns_what_mount_returns(
    modules: Any, way: Callable[..., Any]
) -> None:
    module = modules.write("tool", mount='await coordinator.mount("tools", thing)\nreturn "returned"')
    loader, hint = way(module)

    mount = await loader.load(module.module_id, source_hint=hint)

    assert inspect.iscoroutinefunction(mount)
    assert await mount(ModuleCoordinator()) == "returned"


async def test_a_module_that_wants_to_be_told_says_so_on_its_closure(modules: Any, way: Callable[..., Any]) -> None:
    quiet = modules.write("tool")
    wants = modules.write("tool", tail="async def on_session_ready(coordinator):\n    pass")
    closures = []
    for module in (quiet, wants):
        loader, hint = way(module)
        closures.append(await loader.load(module.module_id, source_hint=hint))

    assert not hasattr(closures[0], "__on_session_ready__")
    assert closures[1].__on_session_ready__ == (wants.module_id, wants.code.on_session_ready)


async def test_a_second_load_binds_the_new_config_to_the_same_module(modules: Any, way: Callable[..., Any]) -> None:
    module = modules.write("tool")
    loader, hint = way(module)
    closures = [await loader.load(module.module_id, {"n": n}, source_hint=hint) for n in (1, 2)]

    for mount in closures:
        await mount(ModuleCoordinator())

    assert module.code.mounts == [{"n": 1}, {"n": 2}]
    assert closures[0] is not closures[1]


async def test_profile_source_is_another_name_for_the_hint(modules: Any) -> None:
    module, other = modules.write("tool"), modules.write("tool")

    await modules.mounted_by(ModuleLoader(), module, profile_source=str(module.folder))
    await modules.mounted_by(ModuleLoader(), other, source_hint=str(other.folder), profile_source="/nowhere")

    assert (module.times_mounted, other.times_mounted) == (1, 1)


async def test_a_module_nobody_has_is_a_discovery_error(modules: Any) -> None:
    error = await modules.refusal_of(ModuleLoader(), "tool-nobody-wrote")

    assert str(error).startswith("Module 'tool-nobody-wrote' not found via entry points or filesystem\n  fix: ")
    assert isinstance(error, ValueError)
    assert isinstance(error, module_sources.ModuleNotFoundError)
    assert module_failure_reason(error) == "missing_source"


async def test_every_failure_is_logged(modules: Any, caplog: pytest.LogCaptureFixture) -> None:
    error = await modules.refusal_of(ModuleLoader(), "tool-nobody-wrote")

    records = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    assert records == [("amplifier_core.loader", logging.ERROR, f"Failed to load module 'tool-nobody-wrote': {error}")]


# What is installed or on the search path


async def test_an_entry_point_comes_before_the_search_path(modules: Any) -> None:
    module = modules.write("tool", tail="origin = 'installed'")
    modules.install(module)
    module.file.write_text(module.file.read_text().replace("'installed'", "'search path'"))

    await modules.mounted_by(ModuleLoader(search_paths=[module.folder.parent]), module)

    assert module.code.origin == "installed"


async def test_the_search_path_comes_before_a_plain_import(modules: Any) -> None:
    module = modules.write("tool", tail="origin = 'installed'")
    modules.install(module, entry_points={})
    module.file.write_text(module.file.read_text().replace("'installed'", "'search path'"))

    await modules.mounted_by(ModuleLoader(search_paths=[module.folder.parent]), module)

    assert module.code.origin == "search path"


async def test_an_entry_point_may_have_any_target(modules: Any) -> None:
    module = modules.write("tool", package="named_otherwise_entirely")
    modules.install(module, entry_points={module.module_id: "named_otherwise_entirely:mount"})

    await modules.mounted_by(ModuleLoader(), module)

    assert module.times_mounted == 1


async def test_an_entry_point_needs_the_exact_id(modules: Any) -> None:
    module = modules.write("tool", package="named_quite_otherwise")
    modules.install(module, entry_points={f"{module.module_id}-more": "named_quite_otherwise:mount"})

    assert isinstance(await modules.refusal_of(ModuleLoader(), module.module_id), module_sources.ModuleNotFoundError)


async def test_an_entry_point_may_be_a_bound_method(modules: Any) -> None:
    source = """
class Mounter:
    async def mount(self, coordinator, config):
        coordinator.session_state["mounted"] = True

mounter = Mounter()

async def on_session_ready(coordinator):
    pass
"""
    module = modules.write("tool", source=source)
    modules.install(module, entry_points={module.module_id: f"{module.package}:mounter.mount"})

    mount = await ModuleLoader().load(module.module_id)
    coordinator = ModuleCoordinator()
    await mount(coordinator)

    assert coordinator.session_state == {"mounted": True}
    assert mount.__on_session_ready__ == (module.module_id, module.code.on_session_ready)


async def test_who_wants_to_be_told_is_asked_where_the_mount_function_is_defined(modules: Any) -> None:
    module = modules.write("tool", source="from .inner import mount")
    inner = module.file.parent / "inner.py"
    inner.write_text("async def mount(coordinator, config): ...\nasync def on_session_ready(coordinator): ...\n")
    modules.install(module)

    mount = await ModuleLoader().load(module.module_id)

    code = sys.modules[f"{module.package}.inner"]
    assert mount.__on_session_ready__ == (module.module_id, code.on_session_ready)
    assert code.mount.__on_session_ready__ == (module.module_id, code.on_session_ready)


async def test_a_sync_callback_of_an_installed_module_is_ignored_with_a_warning(
    modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = modules.write("tool", tail="def on_session_ready(coordinator): ...")
    modules.install(module)

    mount = await ModuleLoader().load(module.module_id)

    assert not hasattr(mount, "__on_session_ready__")
    text = f"Module '{module.module_id}' defines on_session_ready() as sync — must be async. Skipping."
    assert [record.levelno for record in caplog.records if record.getMessage() == text] == [logging.WARNING]


async def test_an_installed_module_is_not_held_to_the_contract_of_its_type(modules: Any) -> None:
    module = modules.write("provider", definition="class Thing:\n    name = NAME\n")
    modules.install(module)

    coordinator = await modules.mounted_by(ModuleLoader(), module)

    assert list(coordinator.get("providers")) == [module.name]


async def test_a_broken_entry_point_is_logged_and_the_search_path_is_tried(
    modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = modules.write("tool")
    modules.install(module, entry_points={module.module_id: "no_such_package_anywhere:mount"})

    await modules.mounted_by(ModuleLoader(search_paths=[module.folder.parent]), module)

    assert module.times_mounted == 1
    records = [record for record in caplog.records if "no_such_package_anywhere" in record.getMessage()]
    assert [(record.levelno, bool(record.exc_info)) for record in records] == [(logging.ERROR, True)]


@pytest.mark.parametrize("place", ["entry point", "search path", "import"])
@pytest.mark.parametrize(
    ("source", "cause"),
    [
        ("import no_such_package_anywhere", "no_such_package_anywhere"),
        ("def mount(:", "line 1"),
        ("raise OSError('no disk')", "no disk"),
        ("import sys\nsys.exit('not on this machine')", "not on this machine"),
        ("", "mount"),
        ("mount = 7", "mount"),
    ],
)
async def test_what_is_there_and_cannot_be_used_is_an_import_failure_that_says_why(
    modules: Any, source: str, cause: str, place: str
) -> None:
    module = modules.write("tool", source=source)
    loader, file = ModuleLoader(search_paths=[module.folder.parent]), module.file
    if place != "search path":
        site = modules.install(module, entry_points=None if place == "entry point" else {})
        loader, file = ModuleLoader(), site / module.package / "__init__.py"

    error = await modules.refusal_of(loader, module.module_id)

    assert isinstance(error, ValueError)
    assert isinstance(error, module_sources.ModuleLoadError)
    assert not isinstance(error, module_sources.ModuleNotFoundError)
    assert module_failure_reason(error) == "invalid_entry_point"
    assert f"'{module.module_id}'" in str(error)
    assert cause in str(error)
    _, fix, advice = str(error).partition("\n  fix: ")
    assert fix
    assert str(file) in advice
    assert str(module.folder) not in sys.path


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("def mount(coordinator, config): ...", "mount() should be async"),
        ("async def mount(coordinator): ...", "mount() should have at least 2 parameters"),
    ],
)
async def test_an_installed_mount_function_has_to_be_async_and_take_two_parameters(
    modules: Any, source: str, complaint: str
) -> None:
    module = modules.write("tool", source=source)
    modules.install(module)

    error = await modules.refusal_of(ModuleLoader(), module.module_id)

    assert isinstance(error, module_sources.ModuleLoadError)
    assert module_failure_reason(error) == "invalid_entry_point"
    assert module.module_id in str(error)
    assert complaint in str(error)
    assert module.package in str(error).partition("fix:")[2]


@pytest.mark.parametrize("name", ["amplifier-module-{}", "{}"])
async def test_a_folder_on_the_search_path_goes_by_the_long_or_the_short_name(
    modules: Any, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "search" / name.format("tool-on-the-path")
    module = modules.write("tool", module_id="tool-on-the-path", folder=folder)
    loader = ModuleLoader(search_paths=[folder.parent])

    await modules.mounted_by(loader, module)
    assert str(folder) in sys.path

    loader.cleanup()
    assert str(folder) not in sys.path


async def test_a_folder_without_code_does_not_hide_the_module_further_down_the_search_path(
    modules: Any, tmp_path: Path
) -> None:
    module = modules.write("tool")
    (tmp_path / "notes" / f"amplifier-module-{module.module_id}").mkdir(parents=True)

    await modules.mounted_by(ModuleLoader(search_paths=[tmp_path / "notes", module.folder.parent]), module)

    assert module.times_mounted == 1


async def test_the_environment_is_not_read_when_search_paths_are_given(
    modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = modules.write("tool")
    monkeypatch.setenv("AMPLIFIER_MODULES", str(module.folder.parent))

    error = await modules.refusal_of(ModuleLoader(search_paths=[tmp_path]), module.module_id)
    assert isinstance(error, module_sources.ModuleNotFoundError)

    await modules.mounted_by(ModuleLoader(search_paths=[]), module)
    assert module.times_mounted == 1


async def test_a_package_named_by_the_folders_project_file_is_found(modules: Any) -> None:
    module = modules.write("tool", package="free_choice_of_name")
    (module.folder / "pyproject.toml").write_text(
        f'[project.entry-points."amplifier.modules"]\n{module.module_id} = "free_choice_of_name:mount"\n'
    )

    await modules.mounted_by(modules.loader(), module)

    assert module.times_mounted == 1
