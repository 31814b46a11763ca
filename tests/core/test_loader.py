"""What the loader keeps: ids, its cache, its entries on the path, its queue, its reasons."""

import logging
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator, ModuleLoader, ModuleValidationError, module_sources
from amplifier_core.exceptions import AmplifierError
from amplifier_core.loader import MODULE_FAILURE_REASONS, TYPE_TO_MOUNT_POINT, module_failure_reason

# Ids


@pytest.mark.parametrize(
    "module_id", ["", ".", "..", "../tool", "tool/../x", "a/b", "a\\b", "a\0b", "/absolute", None, 7, b"tool", ["tool"]]
)
async def test_an_id_that_cannot_be_one_is_never_looked_up(modules: Any, module_id: Any) -> None:
    questions: list[Any] = []
    resolver = SimpleNamespace(resolve=lambda module_id: questions.append(module_id))

    error = await modules.refusal_of(
        modules.loader(resolver, search_paths=[modules.root]), module_id, str(modules.root)
    )

    assert isinstance(error, ValueError)
    assert isinstance(error, module_sources.ModuleNotFoundError)
    assert f"Module '{module_id}' not found" in str(error)
    assert questions == []


@pytest.mark.parametrize(
    "module_id", ["tool x", "tool.x", "..tool", "tool\n", "tööl", "\ud800", "x" * 100_000, "tool:", "t*l", "🔧", " "]
)
@pytest.mark.parametrize("search", [False, True])
async def test_an_odd_id_is_simply_not_found(
    modules: Any, caplog: pytest.LogCaptureFixture, module_id: str, search: bool
) -> None:
    caplog.set_level(logging.CRITICAL, logger="amplifier_core")  # a report of the log could not be encoded
    loader = ModuleLoader(search_paths=[modules.root] if search else None)

    assert isinstance(await modules.refusal_of(loader, module_id), module_sources.ModuleNotFoundError)


# The cache


async def test_an_entry_point_is_resolved_once(modules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules.write("tool")
    site = modules.install(module)
    loader = ModuleLoader()
    await modules.mounted_by(loader, module)

    sys.path.remove(str(site))
    await modules.mounted_by(loader, module)

    assert module.times_mounted == 2


async def test_one_loader_does_not_take_a_module_from_two_places(modules: Any) -> None:
    module = modules.write("tool")
    other = modules.write("tool", module_id=module.module_id)
    loader = modules.loader()
    await modules.mounted_by(loader, module)

    modules.resolver.folders[module.module_id] = other.folder
    error = await modules.refusal_of(loader, module.module_id)

    assert isinstance(error, ImportError)
    assert isinstance(error, module_sources.ModuleLoadError)
    text = f"Refusing to load '{module.module_id}' from {other.folder}: it is already loaded from {module.folder}"
    assert str(error).startswith(text)
    assert module_failure_reason(error) == "unknown"


async def test_local_sources_conflict_like_resolved_ones(modules: Any) -> None:
    module = modules.write("tool")
    other = modules.write("tool", module_id=module.module_id)
    loader = ModuleLoader()
    await modules.mounted_by(loader, module, source_hint=str(module.folder))
    await modules.mounted_by(loader, module, source_hint=module.folder.as_uri())

    with pytest.raises(ImportError, match="Refusing to load"):
        await loader.load(module.module_id, source_hint=str(other.folder))


async def test_a_module_loaded_from_a_folder_is_reused_when_nobody_says_where_it_is(modules: Any) -> None:
    module = modules.write("tool")
    loader = ModuleLoader()
    await modules.mounted_by(loader, module, source_hint=str(module.folder))

    await modules.mounted_by(loader, module)

    assert module.times_mounted == 2


async def test_an_installed_module_gives_way_to_a_resolver_that_comes_later(modules: Any) -> None:
    module = modules.write("tool")
    modules.install(module)
    loader = ModuleLoader(ModuleCoordinator())
    await modules.mounted_by(loader, module)
    del sys.modules[module.package]

    assert loader.coordinator is not None
    await loader.coordinator.mount("module-source-resolver", modules.resolver)
    await modules.mounted_by(loader, module)

    assert module.code.__file__ == str(module.file)


async def test_two_folders_with_one_package_name_cannot_live_in_one_process(modules: Any) -> None:
    module = modules.write("tool")
    other = modules.write("tool", module_id=module.module_id)
    loader = ModuleLoader()
    await modules.mounted_by(loader, module, source_hint=str(module.folder))

    error = await modules.refusal_of(ModuleLoader(), module.module_id, str(other.folder))

    assert isinstance(error, ImportError)
    assert isinstance(error, module_sources.ModuleLoadError)
    assert f"Refusing to load '{module.module_id}' from {other.file.parent}" in str(error)
    assert str(module.file.parent) in str(error)
    assert "a loader without a session still uses" in str(error)
    assert "process" in str(error).partition("fix:")[2]


# sys.path


async def test_a_folder_is_first_on_the_path_while_its_module_is_imported(modules: Any) -> None:
    module = modules.write("tool", head="import sys\nfirst = sys.path[:2]\nimport bundled_dependency_of_a_tool")
    (module.folder / "bundled_dependency_of_a_tool.py").write_text("")

    await modules.mounted_by(modules.loader(), module)

    assert str(module.folder) in module.code.first


async def test_bundled_dependencies_can_be_imported_later_too(modules: Any) -> None:
    module = modules.write("tool", mount='import bundled_late_dependency\nawait coordinator.mount("tools", thing)')
    (module.folder / "bundled_late_dependency.py").write_text("")

    await modules.mounted_by(modules.loader(), module)

    assert "bundled_late_dependency" in sys.modules


async def test_a_loader_notes_the_paths_it_added_and_takes_them_off_again(modules: Any) -> None:
    written = [modules.write("tool") for _ in range(3)]
    path = list(sys.path)
    loader = modules.loader()
    for module in written:
        await modules.mounted_by(loader, module)
    folders = [str(module.folder) for module in written]
    assert loader._added_paths == folders
    assert sys.path == [*reversed(folders), *path]

    sys.path.remove(folders[1])
    loader.cleanup()
    loader.cleanup()

    assert sys.path == path
    assert loader._added_paths == []


async def test_a_session_that_is_initialized_again_puts_its_paths_back(modules: Any) -> None:
    tool = modules.write("tool")
    session = modules.session(modules.plan(tools=[tool.entry()]))

    for _ in range(2):
        await session.initialize()
        assert str(tool.folder) in sys.path
        await session.cleanup()
        assert str(tool.folder) not in sys.path


async def test_a_path_that_was_there_before_stays(modules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules.write("tool")
    monkeypatch.syspath_prepend(str(module.folder))
    loader = modules.loader()

    await modules.mounted_by(loader, module)
    assert loader._added_paths == []
    loader.cleanup()

    assert str(module.folder) in sys.path


@pytest.mark.parametrize("first_to_go", [0, 1])
async def test_a_path_that_two_loaders_need_goes_with_the_last_of_them(modules: Any, first_to_go: int) -> None:
    module = modules.write("tool")
    loaders = [modules.loader(), modules.loader()]
    for loader in loaders:
        await modules.mounted_by(loader, module)
    assert sys.path.count(str(module.folder)) == 1

    loaders.pop(first_to_go).cleanup()
    assert str(module.folder) in sys.path

    loaders.pop().cleanup()
    assert str(module.folder) not in sys.path


async def test_a_failure_of_one_loader_leaves_the_path_of_another_alone(modules: Any) -> None:
    module = modules.write("tool", mount='await coordinator.mount("tools", thing)\nif config: raise LookupError')
    one, other = modules.loader(), modules.loader()
    await modules.mounted_by(one, module)

    with pytest.raises(LookupError):
        await modules.mounted_by(other, module, {"fail": True})

    assert str(module.folder) in sys.path
    one.cleanup()
    assert str(module.folder) not in sys.path


async def test_sessions_that_overlap_share_their_paths_until_the_last_one_ends(modules: Any) -> None:
    plan, path = modules.plan(), list(sys.path)
    one, other = modules.session(plan), modules.session(plan)

    await one.initialize()
    await other.initialize()
    await one.cleanup()
    assert await other.execute("hello") == "answer to hello"
    assert len(sys.path) == len(path) + 3
    await other.cleanup()

    assert sys.path == path


# Other methods


async def test_initialize_mounts_and_logs_what_goes_wrong(modules: Any, caplog: pytest.LogCaptureFixture) -> None:
    coordinator, error = ModuleCoordinator(), OSError("no disk")

    async def works(given: ModuleCoordinator) -> None:
        assert given is coordinator

    async def fails(given: ModuleCoordinator) -> None:
        raise error

    await ModuleLoader().initialize(works, coordinator)
    with pytest.raises(OSError, match="no disk") as caught:
        await ModuleLoader().initialize(fails, coordinator)

    assert caught.value is error
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_the_queue_of_callbacks_is_read_as_a_copy() -> None:
    loader = ModuleLoader()

    async def ready(coordinator: ModuleCoordinator) -> None: ...

    loader.enqueue_on_session_ready("tool-a", ready)
    loader.enqueue_on_session_ready("tool-b", ready)
    loader.get_on_session_ready_queue().clear()
    assert loader.get_on_session_ready_queue() == [("tool-a", ready), ("tool-b", ready)]

    loader.clear_on_session_ready_queue()
    assert loader.get_on_session_ready_queue() == []


def test_the_constructors_coordinator_can_be_read() -> None:
    coordinator = ModuleCoordinator()

    assert ModuleLoader(coordinator).coordinator is coordinator
    assert ModuleLoader().coordinator is None


def test_the_tables_hold_what_applications_compare_with() -> None:
    assert TYPE_TO_MOUNT_POINT == {
        "orchestrator": "orchestrator",
        "provider": "providers",
        "tool": "tools",
        "hook": "hooks",
        "context": "context",
        "resolver": "module-source-resolver",
    }
    assert (
        frozenset(
            {
                "invalid_package_layout",
                "missing_source",
                "invalid_entry_point",
                "invalid_module_metadata",
                "validation_failed",
                "unknown",
            }
        )
        == MODULE_FAILURE_REASONS
    )


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ModuleValidationError("m"), "validation_failed"),
        (ModuleValidationError("m", reason_code="invalid_package_layout"), "invalid_package_layout"),
        (ModuleValidationError("m", reason_code="made_up"), "unknown"),
        (module_sources.ModuleNotFoundError("m"), "missing_source"),
        (module_sources.ModuleLoadError("m"), "unknown"),
        (ImportError("missing_source"), "unknown"),
        (ModuleNotFoundError("the builtin"), "unknown"),
        (RuntimeError("validation_failed"), "unknown"),
    ],
    ids=repr,
)
def test_a_reason_is_read_from_the_error_never_from_its_text(error: Exception, reason: str) -> None:
    assert module_failure_reason(error) == reason


def test_the_errors_of_modules_have_their_documented_parents() -> None:
    assert issubclass(ModuleValidationError, module_sources.ModuleLoadError)
    assert not issubclass(ModuleValidationError, ValueError)
    assert not issubclass(module_sources.ModuleNotFoundError, ImportError)
    assert issubclass(module_sources.ModuleNotFoundError, AmplifierError)
    with pytest.raises(TypeError):
        ModuleValidationError("m", "invalid_entry_point")  # type: ignore[misc]
