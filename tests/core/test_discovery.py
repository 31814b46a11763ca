"""Discovery: the modules that are installed or lie on the search path."""

import logging
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock, patch

import pytest

from amplifier_core import ModuleCoordinator, ModuleLoader
from amplifier_core.loader import TYPE_TO_MOUNT_POINT


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
        ("loop-plain", "orchestrator"),
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


def test_entry_points_that_a_test_puts_in_place_reach_the_loader_alone() -> None:
    """Pydantic looks for its own plug-ins among the entry points when it prepares the first model of a process."""
    code = """
    import asyncio
    from unittest.mock import Mock, patch
    import amplifier_core

    point = Mock()
    point.name = "tool-mocked"
    with patch("importlib.metadata.entry_points", return_value=[point]):
        found = asyncio.run(amplifier_core.ModuleLoader().discover())
    print([info.id for info in found], point.load.call_count)
    """

    run = subprocess.run([sys.executable, "-c", dedent(code)], capture_output=True, text=True, check=True)

    assert run.stdout.strip() == "['tool-mocked'] 0"


async def test_entry_points_that_a_test_puts_in_place_are_read_every_time() -> None:
    point = Mock()
    point.name = "tool-mocked"

    with patch("importlib.metadata.entry_points", return_value=[point]) as entry_points:
        before = [info.id for info in await ModuleLoader().discover()]
        entry_points.return_value = []
        after = [info.id for info in await ModuleLoader().discover()]

    assert (before, after) == (["tool-mocked"], [])


async def test_a_stand_in_for_an_entry_point_needs_only_a_name_and_load() -> None:
    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await coordinator.mount("tools", config["tool"], name="stand-in")

    point, coordinator, tool = SimpleNamespace(name="tool-stand-in", load=lambda: mount), ModuleCoordinator(), object()

    with patch("importlib.metadata.entry_points", return_value=[point]):
        closure = await ModuleLoader().load("tool-stand-in", {"tool": tool})
    await closure(coordinator)

    assert coordinator.get("tools") == {"stand-in": tool}
