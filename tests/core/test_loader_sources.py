"""Where a source says a module is: resolvers of every make, file URLs, absolute paths."""

import asyncio
import inspect
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from amplifier_core import ModuleCoordinator, ModuleLoader, module_sources
from amplifier_core.loader import module_failure_reason


def source_of(folder: Path) -> SimpleNamespace:
    return SimpleNamespace(resolve=lambda: folder)


async def test_what_the_resolver_says_beats_what_is_installed(modules: Any) -> None:
    module = modules.write("tool", tail="origin = 'installed'")
    modules.install(module)
    chosen = modules.write("tool", module_id=module.module_id, tail="origin = 'resolver'")
    modules.resolver.folders[module.module_id] = chosen.folder

    await modules.mounted_by(modules.loader(), chosen)

    assert chosen.code.origin == "resolver"


async def test_a_resolver_gets_the_hint_under_both_names(modules: Any) -> None:
    module = modules.write("tool")

    await modules.loader().load(module.module_id, source_hint="where")

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

    await modules.mounted_by(modules.loader(resolver), module, source_hint="where")

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

    await modules.mounted_by(modules.loader(Old()), module, source_hint=str(module.folder))

    assert module.times_mounted == 1


async def test_async_resolve_takes_priority(modules: Any) -> None:
    module = modules.write("tool")

    class Both:
        def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
            pytest.fail("async_resolve is there")

        async def async_resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
            return source_of(module.folder)

    await modules.mounted_by(modules.loader(Both()), module)

    assert module.times_mounted == 1


@pytest.mark.parametrize("form", [str, Path])
async def test_a_source_may_answer_with_a_path_or_its_text(modules: Any, form: Any) -> None:
    module = modules.write("tool")
    resolver = SimpleNamespace(resolve=lambda module_id: source_of(form(module.folder)))

    await modules.mounted_by(modules.loader(resolver), module)

    assert module.times_mounted == 1


async def test_a_file_source_is_for_the_resolver_when_there_is_one(modules: Any) -> None:
    module = modules.write("tool")
    elsewhere = modules.write("tool", module_id=module.module_id)

    await modules.mounted_by(modules.loader(), module, source_hint=elsewhere.folder.as_uri())

    assert module.code.__file__ == str(module.file)
    assert modules.resolver.calls[0][1] == elsewhere.folder.as_uri()


async def test_what_a_resolver_does_not_know_is_looked_for_among_what_is_installed(modules: Any) -> None:
    module = modules.write("tool")
    modules.install(module)
    del modules.resolver.folders[module.module_id]

    await modules.mounted_by(modules.loader(), module, source_hint=str(module.folder))

    assert module.times_mounted == 1
    assert Path(module.code.__file__).parent.parent != module.folder


async def test_what_nobody_knows_is_reported_in_the_resolvers_words(modules: Any) -> None:
    original = module_sources.ModuleNotFoundError("not in any of my collections")

    def resolve(module_id: str) -> Any:
        raise original

    error = await modules.refusal_of(modules.loader(SimpleNamespace(resolve=resolve)), "tool-nobody-wrote")

    assert error is original
    assert module_failure_reason(error) == "missing_source"


async def test_not_found_may_also_come_from_the_source(modules: Any) -> None:
    module = modules.write("tool")
    modules.install(module)

    def missing() -> Path:
        raise module_sources.ModuleNotFoundError("the download is gone")

    resolver = SimpleNamespace(resolve=lambda module_id: SimpleNamespace(resolve=missing))
    await modules.mounted_by(modules.loader(resolver), module)

    assert module.times_mounted == 1


async def test_other_errors_of_a_resolver_come_through(modules: Any) -> None:
    original = ConnectionError("no network")

    def resolve(module_id: str) -> Any:
        raise original

    assert await modules.refusal_of(modules.loader(SimpleNamespace(resolve=resolve)), "tool-x") is original


@pytest.mark.parametrize("answer", [None, "text", SimpleNamespace(resolve=lambda: None), SimpleNamespace()])
async def test_a_resolver_that_answers_nonsense_is_named(modules: Any, answer: Any) -> None:
    error = await modules.refusal_of(modules.loader(SimpleNamespace(resolve=lambda module_id: answer)), "tool-x")

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

    await modules.mounted_by(ModuleLoader(coordinator), module, source_hint=str(module.folder))

    assert module.times_mounted == 1


# Local sources


async def test_a_file_url_is_percent_decoded(modules: Any, tmp_path: Path) -> None:
    folder = tmp_path / "with space & ünïcode %41" / "folder"
    module = modules.write("tool", folder=folder)

    await modules.mounted_by(ModuleLoader(), module, source_hint=folder.as_uri())

    assert "%20" in folder.as_uri()
    assert module.times_mounted == 1


async def test_localhost_is_this_machine(modules: Any) -> None:
    module = modules.write("tool")

    await modules.mounted_by(ModuleLoader(), module, source_hint=f"file://localhost{module.folder}")

    assert module.times_mounted == 1


async def test_a_path_object_is_a_local_source(modules: Any) -> None:
    module = modules.write("tool")

    await modules.mounted_by(ModuleLoader(), module, source_hint=module.folder)

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

    error = await modules.refusal_of(ModuleLoader(), module.module_id, hint)
    assert isinstance(error, module_sources.ModuleNotFoundError)

    modules.install(module)
    await modules.mounted_by(ModuleLoader(), module, source_hint=hint)
    assert module.times_mounted == 1


async def test_a_local_source_beats_what_is_installed(modules: Any) -> None:
    module = modules.write("tool", tail="origin = 'installed'")
    modules.install(module)
    module.file.write_text(module.file.read_text().replace("'installed'", "'local'"))

    await modules.mounted_by(ModuleLoader(), module, source_hint=str(module.folder))

    assert module.code.origin == "local"


# The contracts


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
