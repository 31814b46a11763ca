"""The snippets of the published module-source protocol work as they are written there."""

from pathlib import Path
from typing import Any

import pytest

from amplifier_core import AmplifierSession, ModuleCoordinator, ModuleLoader
from amplifier_core.module_sources import ModuleLoadError, ModuleNotFoundError, ModuleSource, ModuleSourceResolver


class FileSource(ModuleSource):
    """Resolves a local path."""

    def __init__(self, path: Any) -> None:
        self.path = Path(path)

    def resolve(self) -> Path:
        if not self.path.is_dir():
            raise ModuleNotFoundError(f"{self.path} does not exist")
        return self.path


class PackageSource(ModuleSource):
    """Finds a package below one directory."""

    site: Path

    def __init__(self, name: str) -> None:
        self.name = name

    def resolve(self) -> Path:
        return FileSource(self.site / self.name).resolve()


class MyCustomResolver:
    """The custom resolver of the specification."""

    def __init__(self, overrides: dict[str, Path]) -> None:
        self.overrides = overrides

    def parse_profile_hint(self, profile_hint: Any) -> ModuleSource:
        return FileSource(profile_hint["path"])

    def resolve(self, module_id: str, profile_hint: Any = None) -> ModuleSource:
        # App-specific logic
        if module_id in self.overrides:
            return FileSource(self.overrides[module_id])

        # Fall back to profile hint
        if profile_hint:
            return self.parse_profile_hint(profile_hint)

        # Fall back to some default
        return PackageSource(f"myapp-module-{module_id}")


async def _loaded(loader: ModuleLoader, module: Any, **hint: Any) -> None:
    """Load and mount a module, with the loader's coordinator."""
    assert loader.coordinator is not None
    mount = await loader.load(module.module_id, {"a": 1}, **hint)
    await mount(loader.coordinator)


async def test_a_mounted_resolver_decides_where_the_loader_looks(modules: Any, coordinator: ModuleCoordinator) -> None:
    tool = modules.write("tool")
    resolver: ModuleSourceResolver = MyCustomResolver({tool.module_id: tool.folder})

    await coordinator.mount("module-source-resolver", resolver)
    loader = ModuleLoader(coordinator)
    await _loaded(loader, tool)

    assert coordinator.get_mounted("tools") == [tool.name]
    assert tool.code.mounts == [{"a": 1}]
    loader.cleanup()


async def test_a_resolver_gets_the_profile_source_as_its_hint(modules: Any, coordinator: ModuleCoordinator) -> None:
    tool = modules.write("tool")
    await coordinator.mount("module-source-resolver", MyCustomResolver({}))
    loader = ModuleLoader(coordinator)

    await _loaded(loader, tool, profile_source={"path": tool.folder})

    assert coordinator.get_mounted("tools") == [tool.name]
    loader.cleanup()


async def test_a_resolver_may_fall_back_to_a_default_of_its_own(
    modules: Any, coordinator: ModuleCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = modules.write("tool", folder=modules.root / "myapp-module-tool-mine", module_id="tool-mine")
    monkeypatch.setattr(PackageSource, "site", modules.root, raising=False)
    await coordinator.mount("module-source-resolver", MyCustomResolver({}))
    loader = ModuleLoader(coordinator)

    await _loaded(loader, tool)

    assert coordinator.get_mounted("tools") == [tool.name]
    loader.cleanup()


async def test_a_plans_source_reaches_a_resolver_that_takes_only_the_documented_hint(modules: Any) -> None:
    tool = modules.write("tool")
    plan = modules.plan(tools=[tool.entry(source={"path": tool.folder})])
    session = AmplifierSession(plan)
    own = {module_id: folder for module_id, folder in modules.resolver.folders.items() if module_id != tool.module_id}
    await session.coordinator.mount("module-source-resolver", MyCustomResolver(own))

    async with session:
        assert session.coordinator.get_mounted("tools") == [tool.name]


async def test_without_a_resolver_the_loader_finds_what_is_installed(
    modules: Any, coordinator: ModuleCoordinator
) -> None:
    tool = modules.write("tool")
    modules.install(tool)

    await _loaded(ModuleLoader(coordinator), tool)

    assert coordinator.get_mounted("tools") == [tool.name]


async def test_without_a_resolver_the_loader_searches_the_configured_directories_next(
    modules: Any, coordinator: ModuleCoordinator
) -> None:
    tool = modules.write("tool")
    loader = ModuleLoader(coordinator, search_paths=[tool.folder.parent])

    await _loaded(loader, tool)

    assert coordinator.get_mounted("tools") == [tool.name]
    loader.cleanup()


async def test_a_module_that_nobody_knows_is_not_found_and_the_message_names_it(
    coordinator: ModuleCoordinator,
) -> None:
    with pytest.raises(ModuleNotFoundError, match="tool-that-nobody-wrote"):
        await ModuleLoader(coordinator).load("tool-that-nobody-wrote")


async def test_what_a_resolver_did_not_find_is_told_in_its_own_words(coordinator: ModuleCoordinator) -> None:
    class Strict:
        def resolve(self, module_id: str, profile_hint: Any = None) -> ModuleSource:
            raise ModuleNotFoundError(f"{module_id}: neither in the workspace nor in the registry")

    await coordinator.mount("module-source-resolver", Strict())

    with pytest.raises(ModuleNotFoundError, match="neither in the workspace nor in the registry"):
        await ModuleLoader(coordinator).load("tool-that-nobody-wrote")


@pytest.mark.parametrize(
    "source",
    [
        "def mount(coordinator, config) this is not Python",
        "import a_package_that_is_not_installed\n\nasync def mount(coordinator, config): ...\n",
        "async def mount(coordinator, config):\n    await coordinator.mount('tools', object(), name='thing')\n",
    ],
    ids=["not Python", "missing dependency", "wrong protocol"],
)
async def test_a_module_that_is_found_and_unusable_is_a_load_error_that_names_it(
    modules: Any, coordinator: ModuleCoordinator, source: str
) -> None:
    broken = modules.write("tool", source=source)
    await coordinator.mount("module-source-resolver", MyCustomResolver({broken.module_id: broken.folder}))
    loader = ModuleLoader(coordinator)

    with pytest.raises(ModuleLoadError, match=broken.module_id):
        await _loaded(loader, broken)
    assert coordinator.get_mounted("tools") == []


async def test_a_resolver_gives_the_same_answer_every_time(modules: Any, coordinator: ModuleCoordinator) -> None:
    tool = modules.write("tool")
    await coordinator.mount("module-source-resolver", MyCustomResolver({tool.module_id: tool.folder}))
    loader = ModuleLoader(coordinator)

    await _loaded(loader, tool)
    await _loaded(loader, tool)

    assert len(tool.code.mounts) == 2
    loader.cleanup()
