"""The loader: where modules come from, what is checked on the way, and what a failure says and leaves behind."""

import asyncio
import inspect
import logging
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator, ModuleLoader, ModuleValidationError, module_sources
from amplifier_core.exceptions import AmplifierError
from amplifier_core.loader import MODULE_FAILURE_REASONS, TYPE_TO_MOUNT_POINT, module_failure_reason

FAILED_VALIDATION = re.compile(r"Module '([^']+)' failed validation: ([^.]+)\. Errors: (.+)")
NO_PACKAGE = re.compile(r"Module '([^']+)' has no valid Python package at (.+)")


def loader_with(resolver: Any, **options: Any) -> ModuleLoader:
    """Return a loader whose coordinator has `resolver` mounted."""
    coordinator = ModuleCoordinator()
    coordinator.mount_points["module-source-resolver"] = resolver
    return ModuleLoader(coordinator, **options)


def source_of(folder: Path) -> SimpleNamespace:
    return SimpleNamespace(resolve=lambda: folder)


async def mounted_by(
    loader: ModuleLoader, module: Any, config: dict[str, Any] | None = None, **options: Any
) -> ModuleCoordinator:
    """Load and mount a module on a fresh coordinator."""
    coordinator = ModuleCoordinator()
    mount = await loader.load(module.module_id, config, **options)
    await mount(coordinator)
    return coordinator


async def refusal_of(loader: ModuleLoader, module_id: str, source: Any = None) -> Exception:
    """Return the error of a load that has to fail, at the latest when the module is mounted."""
    try:
        mount = await loader.load(module_id, {}, source_hint=source)
        await mount(ModuleCoordinator())
    except Exception as exc:  # noqa: BLE001 - it is what the tests look at
        return exc
    pytest.fail(f"{module_id} was loaded")


# Ways to load


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
                return loader_with(modules.resolver), None
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

    coordinator = await mounted_by(loader, module, config, source_hint=hint)

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
    await mounted_by(loader, module, source_hint=hint)
    assert module.times_mounted == 2


@pytest.mark.parametrize("given", [None, {}])
async def test_a_module_always_gets_a_dict(modules: Any, way: Callable[..., Any], given: Any) -> None:
    module = modules.write("tool")
    loader, hint = way(module)

    await mounted_by(loader, module, given, source_hint=hint)

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


async def test_profile_source_is_another_name_for_the_hint(modules: Any) -> None:
    module, other = modules.write("tool"), modules.write("tool")

    await mounted_by(ModuleLoader(), module, profile_source=str(module.folder))
    await mounted_by(ModuleLoader(), other, source_hint=str(other.folder), profile_source="/nowhere")

    assert (module.times_mounted, other.times_mounted) == (1, 1)


async def test_a_module_nobody_has_is_a_discovery_error(modules: Any) -> None:
    error = await refusal_of(ModuleLoader(), "tool-nobody-wrote")

    assert str(error).startswith("Module 'tool-nobody-wrote' not found via entry points or filesystem\n  fix: ")
    assert isinstance(error, ValueError)
    assert isinstance(error, module_sources.ModuleNotFoundError)
    assert module_failure_reason(error) == "missing_source"


async def test_every_failure_is_logged(modules: Any, caplog: pytest.LogCaptureFixture) -> None:
    error = await refusal_of(ModuleLoader(), "tool-nobody-wrote")

    records = [(record.name, record.levelno, record.getMessage()) for record in caplog.records]
    assert records == [("amplifier_core.loader", logging.ERROR, f"Failed to load module 'tool-nobody-wrote': {error}")]


# Resolvers


async def test_what_the_resolver_says_beats_what_is_installed(modules: Any) -> None:
    module = modules.write("tool", tail="origin = 'installed'")
    modules.install(module)
    chosen = modules.write("tool", module_id=module.module_id, tail="origin = 'resolver'")
    modules.resolver.folders[module.module_id] = chosen.folder

    await mounted_by(loader_with(modules.resolver), chosen)

    assert chosen.code.origin == "resolver"


async def test_a_resolver_gets_the_hint_under_both_names(modules: Any) -> None:
    module = modules.write("tool")

    await loader_with(modules.resolver).load(module.module_id, source_hint="where")

    assert modules.resolver.calls == [(module.module_id, "where", "where")]


def old(module_id: str, profile_hint: Any) -> Any: ...
def new(module_id: str, source_hint: Any = None) -> Any: ...
def both(module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any: ...
def any_keyword(module_id: str, **hints: Any) -> Any: ...
def positional(module_id: str, hint: Any, /) -> Any: ...
def positional_only_old(module_id: str, profile_hint: Any, /) -> Any: ...
def anything(*arguments: Any) -> Any: ...
def no_hint(module_id: str) -> Any: ...
def unrelated_option(module_id: str, *, verbose: bool = False) -> Any: ...


RESOLVER_SIGNATURES: dict[Callable[..., Any], dict[str, Any]] = {
    old: {"profile_hint": "where"},
    new: {"source_hint": "where"},
    both: {"source_hint": "where", "profile_hint": "where"},
    any_keyword: {"hints": {"source_hint": "where", "profile_hint": "where"}},
    positional: {"hint": "where"},
    positional_only_old: {"profile_hint": "where"},
    anything: {},
    no_hint: {},
    unrelated_option: {},
}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("signature", RESOLVER_SIGNATURES, ids=lambda signature: signature.__name__)
async def test_a_resolver_is_called_as_its_signature_wants(
    modules: Any, signature: Callable[..., Any], is_async: bool
) -> None:
    module = modules.write("tool")
    seen: list[dict[str, Any]] = []

    def answer(*arguments: Any, **keywords: Any) -> Any:
        seen.append(inspect.signature(signature).bind(*arguments, **keywords).arguments)
        return source_of(module.folder)

    async def async_answer(*arguments: Any, **keywords: Any) -> Any:
        await asyncio.sleep(0)
        return answer(*arguments, **keywords)

    function = async_answer if is_async else answer
    function.__signature__ = inspect.signature(signature)  # type: ignore[attr-defined]
    resolver = SimpleNamespace(**{"async_resolve" if is_async else "resolve": function})

    await mounted_by(loader_with(resolver), module, source_hint="where")

    expected = RESOLVER_SIGNATURES[signature]
    assert {key: seen[0][key] for key in expected} == expected
    if signature is anything:
        assert seen[0]["arguments"] == (module.module_id, "where")
    else:
        assert seen[0]["module_id"] == module.module_id


async def test_a_resolver_written_as_a_class_is_understood(modules: Any) -> None:
    module = modules.write("tool")

    class Old(module_sources.ModuleSourceResolver):
        def resolve(self, module_id: str, profile_hint: Any = None) -> Any:  # type: ignore[override]
            return source_of(Path(profile_hint))

    await mounted_by(loader_with(Old()), module, source_hint=str(module.folder))

    assert module.times_mounted == 1


async def test_async_resolve_takes_priority(modules: Any) -> None:
    module = modules.write("tool")

    class Both:
        def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
            pytest.fail("async_resolve is there")

        async def async_resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
            return source_of(module.folder)

    await mounted_by(loader_with(Both()), module)

    assert module.times_mounted == 1


@pytest.mark.parametrize("form", [str, Path])
async def test_a_source_may_answer_with_a_path_or_its_text(modules: Any, form: Any) -> None:
    module = modules.write("tool")
    resolver = SimpleNamespace(resolve=lambda module_id: source_of(form(module.folder)))

    await mounted_by(loader_with(resolver), module)

    assert module.times_mounted == 1


async def test_a_file_source_is_for_the_resolver_when_there_is_one(modules: Any) -> None:
    module = modules.write("tool")
    elsewhere = modules.write("tool", module_id=module.module_id)

    await mounted_by(loader_with(modules.resolver), module, source_hint=elsewhere.folder.as_uri())

    assert module.code.__file__ == str(module.file)
    assert modules.resolver.calls[0][1] == elsewhere.folder.as_uri()


async def test_what_a_resolver_does_not_know_is_looked_for_among_what_is_installed(modules: Any) -> None:
    module = modules.write("tool")
    modules.install(module)
    del modules.resolver.folders[module.module_id]

    await mounted_by(loader_with(modules.resolver), module, source_hint=str(module.folder))

    assert module.times_mounted == 1
    assert Path(module.code.__file__).parent.parent != module.folder


async def test_what_nobody_knows_is_reported_in_the_resolvers_words(modules: Any) -> None:
    original = module_sources.ModuleNotFoundError("not in any of my collections")

    def resolve(module_id: str) -> Any:
        raise original

    error = await refusal_of(loader_with(SimpleNamespace(resolve=resolve)), "tool-nobody-wrote")

    assert error is original
    assert module_failure_reason(error) == "missing_source"


async def test_not_found_may_also_come_from_the_source(modules: Any) -> None:
    module = modules.write("tool")
    modules.install(module)

    def missing() -> Path:
        raise module_sources.ModuleNotFoundError("the download is gone")

    resolver = SimpleNamespace(resolve=lambda module_id: SimpleNamespace(resolve=missing))
    await mounted_by(loader_with(resolver), module)

    assert module.times_mounted == 1


async def test_other_errors_of_a_resolver_come_through(modules: Any) -> None:
    original = ConnectionError("no network")

    def resolve(module_id: str) -> Any:
        raise original

    assert await refusal_of(loader_with(SimpleNamespace(resolve=resolve)), "tool-x") is original


@pytest.mark.parametrize("answer", [None, "text", SimpleNamespace(resolve=lambda: None), SimpleNamespace()])
async def test_a_resolver_that_answers_nonsense_is_named(modules: Any, answer: Any) -> None:
    error = await refusal_of(loader_with(SimpleNamespace(resolve=lambda module_id: answer)), "tool-x")

    assert isinstance(error, module_sources.ModuleLoadError)
    assert "'tool-x'" in str(error)
    assert "resolver" in str(error)
    assert "fix:" in str(error)


async def test_the_resolver_is_the_one_of_the_loaders_own_coordinator(modules: Any) -> None:
    module = modules.write("tool")
    elsewhere = ModuleCoordinator()
    elsewhere.mount_points["module-source-resolver"] = modules.resolver

    with pytest.raises(module_sources.ModuleNotFoundError):
        await ModuleLoader(ModuleCoordinator()).load(module.module_id, {}, coordinator=elsewhere)


async def test_a_coordinator_that_knows_no_resolvers_is_no_obstacle(modules: Any) -> None:
    module = modules.write("tool")
    coordinator = ModuleCoordinator()
    del coordinator.mount_points["module-source-resolver"]

    await mounted_by(ModuleLoader(coordinator), module, source_hint=str(module.folder))

    assert module.times_mounted == 1


# Local sources


async def test_a_file_url_is_percent_decoded(modules: Any, tmp_path: Path) -> None:
    folder = tmp_path / "with space & ünïcode %41" / "folder"
    module = modules.write("tool", folder=folder)

    await mounted_by(ModuleLoader(), module, source_hint=folder.as_uri())

    assert "%20" in folder.as_uri()
    assert module.times_mounted == 1


async def test_localhost_is_this_machine(modules: Any) -> None:
    module = modules.write("tool")

    await mounted_by(ModuleLoader(), module, source_hint=f"file://localhost{module.folder}")

    assert module.times_mounted == 1


async def test_a_path_object_is_a_local_source(modules: Any) -> None:
    module = modules.write("tool")

    await mounted_by(ModuleLoader(), module, source_hint=module.folder)

    assert module.times_mounted == 1


@pytest.mark.parametrize(
    "form",
    [
        lambda folder: f"file://otherhost{folder}",
        lambda folder: f"file://{str(folder)[1:]}",
        lambda folder: f"file:{folder}",
        lambda folder: f"git+file://{folder}",
        lambda folder: os.path.relpath(folder),
        lambda folder: f"{folder}/nothing-there",
        lambda folder: f"{folder}/{folder.name.replace('-', '_').replace('amplifier_module', 'amplifier_module')}",
        lambda folder: "/" + "long" * 5_000,
        lambda folder: f"{folder}\0",
        lambda folder: f"{folder}\ud800",
        lambda folder: "",
        lambda folder: {"path": str(folder)},
        lambda folder: str(folder).encode(),
        lambda folder: 7,
    ],
)
async def test_any_other_hint_is_ignored_without_a_resolver(modules: Any, form: Callable[[Path], Any]) -> None:
    module = modules.write("tool")
    hint = form(module.folder)
    if isinstance(hint, str) and hint.startswith(f"{module.folder}/amplifier"):
        hint = str(module.file)  # a file is no folder

    error = await refusal_of(ModuleLoader(), module.module_id, hint)
    assert isinstance(error, module_sources.ModuleNotFoundError)

    modules.install(module)
    await mounted_by(ModuleLoader(), module, source_hint=hint)
    assert module.times_mounted == 1


async def test_a_local_source_beats_what_is_installed(modules: Any) -> None:
    module = modules.write("tool", tail="origin = 'installed'")
    modules.install(module)
    module.file.write_text(module.file.read_text().replace("'installed'", "'local'"))

    await mounted_by(ModuleLoader(), module, source_hint=str(module.folder))

    assert module.code.origin == "local"


# Direct loading


async def test_an_entry_point_comes_before_the_search_path(modules: Any) -> None:
    module = modules.write("tool", tail="origin = 'installed'")
    modules.install(module)
    module.file.write_text(module.file.read_text().replace("'installed'", "'search path'"))

    await mounted_by(ModuleLoader(search_paths=[module.folder.parent]), module)

    assert module.code.origin == "installed"


async def test_the_search_path_comes_before_a_plain_import(modules: Any) -> None:
    module = modules.write("tool", tail="origin = 'installed'")
    modules.install(module, entry_points={})
    module.file.write_text(module.file.read_text().replace("'installed'", "'search path'"))

    await mounted_by(ModuleLoader(search_paths=[module.folder.parent]), module)

    assert module.code.origin == "search path"


async def test_an_entry_point_may_have_any_target(modules: Any) -> None:
    module = modules.write("tool", package="named_otherwise_entirely")
    modules.install(module, entry_points={module.module_id: "named_otherwise_entirely:mount"})

    await mounted_by(ModuleLoader(), module)

    assert module.times_mounted == 1


async def test_an_entry_point_needs_the_exact_id(modules: Any) -> None:
    module = modules.write("tool", package="named_quite_otherwise")
    modules.install(module, entry_points={f"{module.module_id}-more": "named_quite_otherwise:mount"})

    assert isinstance(await refusal_of(ModuleLoader(), module.module_id), module_sources.ModuleNotFoundError)


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

    coordinator = await mounted_by(ModuleLoader(), module)

    assert list(coordinator.get("providers")) == [module.name]


async def test_a_broken_entry_point_is_logged_and_the_search_path_is_tried(
    modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = modules.write("tool")
    modules.install(module, entry_points={module.module_id: "no_such_package_anywhere:mount"})

    await mounted_by(ModuleLoader(search_paths=[module.folder.parent]), module)

    assert module.times_mounted == 1
    records = [record for record in caplog.records if "no_such_package_anywhere" in record.getMessage()]
    assert [(record.levelno, bool(record.exc_info)) for record in records] == [(logging.ERROR, True)]


@pytest.mark.parametrize("search_path", [False, True])
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
    modules: Any, source: str, cause: str, search_path: bool
) -> None:
    module = modules.write("tool", source=source)
    if search_path:
        loader = ModuleLoader(search_paths=[module.folder.parent])
    else:
        modules.install(module, entry_points={})
        loader = ModuleLoader()

    error = await refusal_of(loader, module.module_id)

    assert isinstance(error, ValueError)
    assert isinstance(error, module_sources.ModuleLoadError)
    assert not isinstance(error, module_sources.ModuleNotFoundError)
    assert module_failure_reason(error) == "invalid_entry_point"
    assert f"'{module.module_id}'" in str(error)
    assert module.package in str(error)
    assert cause in str(error)
    assert "\n  fix: " in str(error)
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

    error = await refusal_of(ModuleLoader(), module.module_id)

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

    await mounted_by(loader, module)
    assert str(folder) in sys.path

    loader.cleanup()
    assert str(folder) not in sys.path


async def test_a_folder_without_code_does_not_hide_the_module_further_down_the_search_path(
    modules: Any, tmp_path: Path
) -> None:
    module = modules.write("tool")
    (tmp_path / "notes" / f"amplifier-module-{module.module_id}").mkdir(parents=True)

    await mounted_by(ModuleLoader(search_paths=[tmp_path / "notes", module.folder.parent]), module)

    assert module.times_mounted == 1


async def test_the_environment_is_not_read_when_search_paths_are_given(
    modules: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = modules.write("tool")
    monkeypatch.setenv("AMPLIFIER_MODULES", str(module.folder.parent))

    error = await refusal_of(ModuleLoader(search_paths=[tmp_path]), module.module_id)
    assert isinstance(error, module_sources.ModuleNotFoundError)

    await mounted_by(ModuleLoader(search_paths=[]), module)
    assert module.times_mounted == 1


async def test_a_package_named_by_the_folders_project_file_is_found(modules: Any) -> None:
    module = modules.write("tool", package="free_choice_of_name")
    (module.folder / "pyproject.toml").write_text(
        f'[project.entry-points."amplifier.modules"]\n{module.module_id} = "free_choice_of_name:mount"\n'
    )

    await mounted_by(loader_with(modules.resolver), module)

    assert module.times_mounted == 1


# Ids that are never looked up


@pytest.mark.parametrize(
    "module_id", ["", ".", "..", "../tool", "tool/../x", "a/b", "a\\b", "a\0b", "/absolute", None, 7, b"tool", ["tool"]]
)
async def test_an_id_that_cannot_be_one_is_never_looked_up(modules: Any, module_id: Any) -> None:
    questions: list[Any] = []
    resolver = SimpleNamespace(resolve=lambda module_id: questions.append(module_id))

    error = await refusal_of(loader_with(resolver, search_paths=[modules.root]), module_id, str(modules.root))

    assert isinstance(error, ValueError)
    assert isinstance(error, module_sources.ModuleNotFoundError)
    assert f"Module '{module_id}' not found" in str(error)
    assert questions == []


@pytest.mark.parametrize(
    "module_id", ["tool x", "tool.x", "..tool", "tool\n", "tööl", "\ud800", "x" * 100_000, "tool:", "t*l", "🔧", " "]
)
@pytest.mark.parametrize("search", [False, True])
async def test_an_odd_id_is_simply_not_found(modules: Any, module_id: str, search: bool) -> None:
    loader = ModuleLoader(search_paths=[modules.root] if search else None)

    assert isinstance(await refusal_of(loader, module_id), module_sources.ModuleNotFoundError)


# The cache


async def test_a_second_load_binds_the_new_config_to_the_same_module(modules: Any, way: Callable[..., Any]) -> None:
    module = modules.write("tool")
    loader, hint = way(module)
    closures = [await loader.load(module.module_id, {"n": n}, source_hint=hint) for n in (1, 2)]

    for mount in closures:
        await mount(ModuleCoordinator())

    assert module.code.mounts == [{"n": 1}, {"n": 2}]
    assert closures[0] is not closures[1]


async def test_an_entry_point_is_resolved_once(modules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules.write("tool")
    site = modules.install(module)
    loader = ModuleLoader()
    await mounted_by(loader, module)

    sys.path.remove(str(site))
    await mounted_by(loader, module)

    assert module.times_mounted == 2


async def test_one_loader_does_not_take_a_module_from_two_places(modules: Any) -> None:
    module = modules.write("tool")
    other = modules.write("tool", module_id=module.module_id)
    loader = loader_with(modules.resolver)
    await mounted_by(loader, module)

    modules.resolver.folders[module.module_id] = other.folder
    error = await refusal_of(loader, module.module_id)

    assert isinstance(error, ImportError)
    assert isinstance(error, module_sources.ModuleLoadError)
    text = f"Refusing to load '{module.module_id}' from {other.folder}: it is already loaded from {module.folder}"
    assert str(error).startswith(text)
    assert module_failure_reason(error) == "unknown"


async def test_local_sources_conflict_like_resolved_ones(modules: Any) -> None:
    module = modules.write("tool")
    other = modules.write("tool", module_id=module.module_id)
    loader = ModuleLoader()
    await mounted_by(loader, module, source_hint=str(module.folder))
    await mounted_by(loader, module, source_hint=module.folder.as_uri())

    with pytest.raises(ImportError, match="Refusing to load"):
        await loader.load(module.module_id, source_hint=str(other.folder))


async def test_a_module_loaded_from_a_folder_is_reused_when_nobody_says_where_it_is(modules: Any) -> None:
    module = modules.write("tool")
    loader = ModuleLoader()
    await mounted_by(loader, module, source_hint=str(module.folder))

    await mounted_by(loader, module)

    assert module.times_mounted == 2


async def test_an_installed_module_gives_way_to_a_resolver_that_comes_later(modules: Any) -> None:
    module = modules.write("tool")
    modules.install(module)
    loader = ModuleLoader(ModuleCoordinator())
    await mounted_by(loader, module)
    del sys.modules[module.package]

    assert loader.coordinator is not None
    await loader.coordinator.mount("module-source-resolver", modules.resolver)
    await mounted_by(loader, module)

    assert module.code.__file__ == str(module.file)


async def test_two_folders_with_one_package_name_cannot_live_in_one_process(modules: Any) -> None:
    module = modules.write("tool")
    other = modules.write("tool", module_id=module.module_id)
    await mounted_by(ModuleLoader(), module, source_hint=str(module.folder))

    error = await refusal_of(ModuleLoader(), module.module_id, str(other.folder))

    assert isinstance(error, ModuleValidationError)
    assert f"Refusing to import '{module.package}' from {other.file}" in str(error)
    assert str(module.file) in str(error)
    assert "process" in str(error).partition("fix:")[2]


# Validation while loading


BROKEN = {
    "a missing dependency": (
        {"head": "import no_such_package_anywhere"},
        "validation_failed",
        "No module named 'no_such_package_anywhere'",
        "install 'no_such_package_anywhere'",
    ),
    "a syntax error": ({"head": "def broken(:"}, "validation_failed", "invalid syntax", "correct line"),
    "an error at import": ({"head": "raise OSError('no disk')"}, "validation_failed", "no disk", "importable"),
    "an exit at import": ({"head": "raise SystemExit('bye')"}, "validation_failed", "bye", "importable"),
    "no mount": ({"source": "x = 1"}, "invalid_entry_point", "No mount() function found", "async def mount"),
    "a mount that is no function": ({"tail": "mount = 7"}, "invalid_entry_point", "not callable", "async def mount"),
    "a sync mount": (
        {"source": "def mount(coordinator, config): ..."},
        "invalid_entry_point",
        "mount() should be async",
        "async def mount",
    ),
    "a mount without config": (
        {"source": "async def mount(coordinator): ..."},
        "invalid_entry_point",
        "at least 2 parameters",
        "async def mount",
    ),
    "a sync callback": (
        {"tail": "def on_session_ready(coordinator): ..."},
        "invalid_entry_point",
        "on_session_ready() must be async",
        "async def on_session_ready",
    ),
    "the wrong protocol": (
        {"definition": "class Thing:\n    name = NAME"},
        "validation_failed",
        "does not implement Tool interface",
        "docs/contracts/tool.md",
    ),
    "a sync execute": (
        {"definition": "class Thing:\n    name = description = NAME\n    def execute(self, input): ..."},
        "validation_failed",
        "Tool.execute() should be async",
        "docs/contracts/tool.md",
    ),
    "nothing mounted": ({"mount": "pass"}, "validation_failed", "No tool was mounted", "docs/contracts/tool.md"),
}


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_broken_module_is_refused_with_its_name_its_file_and_a_fix(modules: Any, fault: str) -> None:
    broken, reason, complaint, fix = BROKEN[fault]
    module = modules.write("tool", **broken)

    error = await refusal_of(loader_with(modules.resolver), module.module_id)

    assert isinstance(error, ModuleValidationError)
    assert not isinstance(error, ValueError)
    assert error.reason_code == module_failure_reason(error) == reason
    matched = FAILED_VALIDATION.search(f"Cannot initialize without orchestrator: {error}")
    assert matched is not None
    assert matched[1] == module.module_id
    assert re.fullmatch(r"FAILED: \d/\d checks passed \(1 errors, 0 warnings\)", matched[2])
    assert complaint in matched[3]
    message, _, advice = str(error).partition("\n  fix: ")
    assert fix in advice
    assert str(module.folder) in advice or str(module.folder) in message


@pytest.mark.parametrize("kind", ["orchestrator", "context", "provider", "tool"])
async def test_what_a_module_mounts_has_to_fulfil_the_contract_of_its_type(modules: Any, kind: str) -> None:
    module = modules.write(kind, definition="class Thing:\n    name = NAME")

    error = await refusal_of(loader_with(modules.resolver), module.module_id)

    assert isinstance(error, ModuleValidationError)
    assert "does not implement" in str(error)
    assert f"docs/contracts/{kind}.md" in str(error)


async def test_a_declared_type_beats_the_one_the_id_suggests(modules: Any) -> None:
    module = modules.write(
        "tool",
        head='__amplifier_module_type__ = "hook"',
        mount='coordinator.hooks.register("tool:pre", thing)',
    )

    await mounted_by(loader_with(modules.resolver), module)

    assert module.times_mounted == 1


@pytest.mark.parametrize("declared", ["'gadget'", "7", "['tool']"])
async def test_an_unknown_declared_type_is_refused(modules: Any, declared: str) -> None:
    module = modules.write("tool", head=f"__amplifier_module_type__ = {declared}")

    error = await refusal_of(loader_with(modules.resolver), module.module_id)

    text = (
        f"Module '{module.module_id}' has unknown type '{declared.strip(chr(39))}'. "
        "Valid types: ['orchestrator', 'provider', 'tool', 'hook', 'context', 'resolver']"
    )
    assert isinstance(error, ModuleValidationError)
    assert str(error).startswith(text)
    assert error.reason_code == "invalid_module_metadata"
    assert str(module.file) in str(error)


async def test_a_type_without_a_validator_is_loaded_with_a_warning(
    modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = modules.write("resolver", head='__amplifier_module_type__ = "resolver"')

    coordinator = await mounted_by(loader_with(modules.resolver), module)

    assert coordinator.get("module-source-resolver") is not None
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [module.module_id in record.getMessage() for record in warnings] == [True]


@pytest.mark.parametrize("is_there", [False, True])
async def test_a_folder_without_a_package_is_refused(modules: Any, tmp_path: Path, is_there: bool) -> None:
    folder = tmp_path / "empty"
    if is_there:
        folder.mkdir()
    modules.resolver.folders["tool-x"] = folder

    error = await refusal_of(loader_with(modules.resolver), "tool-x")

    assert isinstance(error, ModuleValidationError)
    assert error.reason_code == ("invalid_package_layout" if is_there else "missing_source")
    matched = NO_PACKAGE.search(f"Cannot initialize without context manager: {error}")
    assert matched is not None
    assert matched.groups() == ("tool-x", str(folder))
    assert "fix:" in str(error)
    assert str(folder) not in sys.path


@pytest.mark.parametrize("mount", ["return None", "return lambda: None"])
async def test_a_provider_may_decline(modules: Any, mount: str) -> None:
    module = modules.write("provider", mount=mount)

    coordinator = await mounted_by(loader_with(modules.resolver), module)

    assert coordinator.get("providers") == {}


async def test_only_what_the_module_mounted_itself_is_held_against_it(modules: Any) -> None:
    module = modules.write("tool")
    coordinator = ModuleCoordinator()
    await coordinator.mount("tools", object(), name="somebody-elses")

    mount = await loader_with(modules.resolver).load(module.module_id)
    await mount(coordinator)

    assert list(coordinator.get("tools")) == ["somebody-elses", module.name]


async def test_a_coordinator_of_another_make_will_do(modules: Any) -> None:
    module = modules.write("tool")
    calls: list[Any] = []

    class Simple:
        async def mount(self, *arguments: Any, **keywords: Any) -> None:
            calls.append(arguments)

    mount = await loader_with(modules.resolver).load(module.module_id)
    await mount(Simple())

    assert len(calls) == 1


# What a failure leaves behind


BAD_MOUNTS = {
    "raises half-way": "raise OSError('half-way')",
    "is interrupted": "raise KeyboardInterrupt",
    "breaks its contract": "await coordinator.mount('tools', 7, name='wrong')",
}


@pytest.mark.parametrize("fault", BAD_MOUNTS)
async def test_a_module_that_fails_to_mount_leaves_nothing_on_the_coordinator(modules: Any, fault: str) -> None:
    module = modules.write(
        "tool",
        mount=f"""
            await coordinator.mount("tools", thing)
            await coordinator.mount("context", thing)
            coordinator.hooks.register("tool:pre", print)
            coordinator.register_capability("theirs", thing)
            coordinator.register_contributor("theirs", NAME, print)
            coordinator.register_cleanup(lambda: config["runs"].append("cleanup"))
            {BAD_MOUNTS[fault]}
        """,
    )
    loader, coordinator = loader_with(modules.resolver), ModuleCoordinator()
    before, path = coordinator.to_dict(), list(sys.path)
    runs: list[str] = []
    mount = await loader.load(module.module_id, {"runs": runs})
    assert sys.path == [str(module.folder), *path]

    with pytest.raises((OSError, KeyboardInterrupt, ModuleValidationError)):
        await mount(coordinator)

    assert coordinator.to_dict() == before
    assert not coordinator.hooks.has_handlers("tool:pre")
    assert coordinator.channels == {}
    assert runs == ["cleanup"]
    assert sys.path == path
    assert loader._added_paths == []


@pytest.mark.parametrize("fault", BROKEN)
async def test_a_refused_module_leaves_no_path_behind(modules: Any, fault: str) -> None:
    module = modules.write("tool", **BROKEN[fault][0])
    path = list(sys.path)
    loader = loader_with(modules.resolver)

    await refusal_of(loader, module.module_id)

    assert sys.path == path
    assert loader._added_paths == []


async def test_a_package_that_could_not_be_imported_is_tried_anew_when_it_is_repaired(modules: Any) -> None:
    module = modules.write("tool", head="import no_such_package_anywhere")
    loader = loader_with(modules.resolver)
    await refusal_of(loader, module.module_id)

    module.file.write_text(module.file.read_text().replace("import no_such_package_anywhere", ""))
    await mounted_by(loader, module)

    assert module.times_mounted == 1


async def test_a_second_instance_that_fails_leaves_the_first_one_its_path(modules: Any) -> None:
    module = modules.write("tool", mount='await coordinator.mount("tools", thing)\nif config: raise LookupError')
    loader = loader_with(modules.resolver)
    await mounted_by(loader, module)
    mount = await loader.load(module.module_id, {"fail": True})

    with pytest.raises(LookupError):
        await mount(ModuleCoordinator())

    assert str(module.folder) in sys.path
    loader.cleanup()
    assert str(module.folder) not in sys.path


# sys.path


async def test_a_folder_is_first_on_the_path_while_its_module_is_imported(modules: Any) -> None:
    module = modules.write("tool", head="import sys\nfirst = sys.path[:2]\nimport bundled_dependency_of_a_tool")
    (module.folder / "bundled_dependency_of_a_tool.py").write_text("")

    await mounted_by(loader_with(modules.resolver), module)

    assert str(module.folder) in module.code.first


async def test_bundled_dependencies_can_be_imported_later_too(modules: Any) -> None:
    module = modules.write("tool", mount='import bundled_late_dependency\nawait coordinator.mount("tools", thing)')
    (module.folder / "bundled_late_dependency.py").write_text("")

    await mounted_by(loader_with(modules.resolver), module)

    assert "bundled_late_dependency" in sys.modules


async def test_a_loader_notes_the_paths_it_added_and_takes_them_off_again(modules: Any) -> None:
    written = [modules.write("tool") for _ in range(3)]
    path = list(sys.path)
    loader = loader_with(modules.resolver)
    for module in written:
        await mounted_by(loader, module)
    folders = [str(module.folder) for module in written]
    assert loader._added_paths == folders
    assert sys.path == [*reversed(folders), *path]

    sys.path.remove(folders[1])
    loader.cleanup()
    loader.cleanup()

    assert sys.path == path
    assert loader._added_paths == []


async def test_a_path_that_was_there_before_stays(modules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules.write("tool")
    monkeypatch.syspath_prepend(str(module.folder))
    loader = loader_with(modules.resolver)

    await mounted_by(loader, module)
    assert loader._added_paths == []
    loader.cleanup()

    assert str(module.folder) in sys.path


@pytest.mark.parametrize("first_to_go", [0, 1])
async def test_a_path_that_two_loaders_need_goes_with_the_last_of_them(modules: Any, first_to_go: int) -> None:
    module = modules.write("tool")
    loaders = [loader_with(modules.resolver), loader_with(modules.resolver)]
    for loader in loaders:
        await mounted_by(loader, module)
    assert sys.path.count(str(module.folder)) == 1

    loaders.pop(first_to_go).cleanup()
    assert str(module.folder) in sys.path

    loaders.pop().cleanup()
    assert str(module.folder) not in sys.path


async def test_a_failure_of_one_loader_leaves_the_path_of_another_alone(modules: Any) -> None:
    module = modules.write("tool", mount='await coordinator.mount("tools", thing)\nif config: raise LookupError')
    one, other = loader_with(modules.resolver), loader_with(modules.resolver)
    await mounted_by(one, module)

    with pytest.raises(LookupError):
        await mounted_by(other, module, {"fail": True})

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


# Discovery


async def test_discovery_lists_entry_points_then_folders(modules: Any) -> None:
    installed = modules.write("provider")
    modules.install(installed)
    folders = [modules.write(kind) for kind in ("tool", "hook")]
    paths = [module.folder.parent for module in folders]

    found = await ModuleLoader(search_paths=paths).discover()

    ours = [info for info in found if info.id in {module.module_id for module in (installed, *folders)}]
    assert [info.id for info in ours] == [module.module_id for module in (installed, *folders)]
    info = ours[0]
    assert info.model_dump() == {
        "id": installed.module_id,
        "name": installed.module_id.replace("-", " ").title(),
        "version": "1.0.0",
        "type": "provider",
        "mount_point": "providers",
        "description": f"Module: {installed.module_id}",
        "config_schema": None,
    }


async def test_discovery_does_not_merge_what_is_there_twice(modules: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = modules.write("tool")
    modules.install(module)
    monkeypatch.setenv("AMPLIFIER_MODULES", str(module.folder.parent))

    found = await ModuleLoader().discover()

    assert [info.id for info in found].count(module.module_id) == 2


@pytest.mark.parametrize(
    ("module_id", "expected"),
    [
        ("my-orchestrator", "orchestrator"),
        ("loop-basic", "orchestrator"),
        ("tool-provider", "provider"),
        ("Provider-X", "provider"),
        ("context-tool", "tool"),
        ("hooks-context", "hook"),
        ("my-context", "context"),
        ("anything", "tool"),
    ],
)
async def test_the_type_of_a_module_is_guessed_from_its_id(
    modules: Any, tmp_path: Path, module_id: str, expected: str
) -> None:
    (tmp_path / "search" / f"amplifier-module-{module_id}").mkdir(parents=True)

    found = await ModuleLoader(search_paths=[tmp_path / "search"]).discover()

    assert [(info.type, info.mount_point) for info in found if info.id == module_id] == [
        (expected, TYPE_TO_MOUNT_POINT[expected])
    ]


async def test_discovery_reads_the_declared_type_of_a_folder(modules: Any) -> None:
    module = modules.write("tool", head='__amplifier_module_type__ = "hook"')
    path = list(sys.path)

    found = await ModuleLoader(search_paths=[module.folder.parent]).discover()

    assert [info.type for info in found if info.id == module.module_id] == ["hook"]
    assert sys.path == path
    assert module.times_mounted == 0


async def test_discovery_leaves_out_a_folder_that_declares_nonsense(
    modules: Any, caplog: pytest.LogCaptureFixture
) -> None:
    module = modules.write("tool", head='__amplifier_module_type__ = "gadget"')

    found = await ModuleLoader(search_paths=[module.folder.parent]).discover()

    assert module.module_id not in [info.id for info in found]
    assert [record.levelno for record in caplog.records if module.module_id in record.getMessage()] == [logging.ERROR]


@pytest.mark.parametrize("head", ["import no_such_package_anywhere", "def broken(:", "raise SystemExit(1)"])
async def test_discovery_lists_what_cannot_be_imported_by_its_id(
    modules: Any, caplog: pytest.LogCaptureFixture, head: str
) -> None:
    module = modules.write("tool", head=head)

    found = await ModuleLoader(search_paths=[module.folder.parent]).discover()

    assert [info.type for info in found if info.id == module.module_id] == ["tool"]
    assert caplog.records == []


async def test_discovery_looks_at_module_folders_only(modules: Any, tmp_path: Path) -> None:
    search = tmp_path / "search"
    (search / "tool-short-name").mkdir(parents=True)
    (search / "amplifier-module-").mkdir()
    (search / "amplifier-module-file").write_text("")

    found = await ModuleLoader(search_paths=[search]).discover()

    assert not {"tool-short-name", "", "file"} & {info.id for info in found}


async def test_a_missing_search_path_is_warned_about(
    modules: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    missing = tmp_path / "nowhere"

    await ModuleLoader(search_paths=[missing, tmp_path]).discover()

    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, f"Module path does not exist: {missing}")
    ]


# Module sources


def test_module_sources_can_be_subclassed(tmp_path: Path) -> None:
    class Fixed(module_sources.ModuleSource):
        def resolve(self) -> Path:
            return tmp_path

    assert Fixed().resolve() == tmp_path


def test_a_file_system_source_gives_copies_away() -> None:
    given = ["/a", "/b"]
    source = module_sources.FileSystemModuleSource(given)

    given.clear()
    source.get_module_paths().clear()
    source.get_mention_mappings()["x"] = "y"

    assert source.get_module_paths() == ["/a", "/b"]
    assert source.get_mention_mappings() == {}
    assert module_sources.FileSystemModuleSource().get_module_paths() == []
