"""Activation: resolved, with its dependencies, importable."""

import asyncio
import importlib.metadata
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.exceptions import BundleError, BundleNotFoundError
from amplifier_foundation.modules import ModuleActivationError, ModuleActivator

GIT = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]

RUN = """
import asyncio, json, sys
from pathlib import Path
from amplifier_foundation.bundle import Bundle

async def main():
    folder, cache = sys.argv[1:]
    bundle = Bundle("b", session={"orchestrator": "loop-basic", "context": "context-simple"},
                    tools=[{"module": "tool-use", "source": folder}])
    prepared = await bundle.prepare(strict=True, cache_dir=Path(cache))
    async with prepared.create_session() as session:
        print(session.coordinator.get_capability("use"))

asyncio.run(main())
"""


def run(command: list[str], cwd: Path | None = None) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def environments(cache_dir: Path) -> list[Path]:
    return sorted((cache_dir / "env").glob("*"))


async def test_a_module_its_source_folder_and_its_dependencies_become_importable(
    cache_dir: Path, stand_in_installer: Path, make_module: Any
) -> None:
    folder = make_module("tool-x", "thing")
    (folder / "src").mkdir()
    told: list[tuple[str, str]] = []

    path = await ModuleActivator(cache_dir).activate("tool-x", str(folder), lambda *step: told.append(step))

    (environment,) = environments(cache_dir)
    assert path == folder
    assert sys.path[:3] == [str(folder), str(folder / "src"), str(environment)]
    assert told == [("activating", "tool-x"), ("installing", "tool-x")]


async def test_a_relative_source_counts_from_the_base_path(tmp_path: Path, cache_dir: Path, make_module: Any) -> None:
    folder = make_module("tool-x")

    path = await ModuleActivator(cache_dir, base_path=tmp_path).activate("tool-x", "./modules/tool-x")

    assert path == folder


async def test_a_repeated_activation_only_resolves_again(
    cache_dir: Path, stand_in_installer: Path, make_module: Any
) -> None:
    folder = make_module("tool-x", "thing")
    activator = ModuleActivator(cache_dir)
    told: list[tuple[str, str]] = []
    await activator.activate("tool-x", str(folder))

    assert await activator.activate("tool-x", str(folder), lambda *step: told.append(step)) == folder
    assert told == []


async def test_dependencies_can_be_left_alone(cache_dir: Path, stand_in_installer: Path, make_module: Any) -> None:
    folder = make_module("tool-x", "thing")

    await ModuleActivator(cache_dir, install_deps=False).activate("tool-x", str(folder))

    assert environments(cache_dir) == []
    assert str(folder) in sys.path


async def test_a_subdirectory_of_a_repository_is_activated(tmp_path: Path, cache_dir: Path, make_module: Any) -> None:
    make_module("tool-x", where="origin/modules")
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        run([*GIT, *arguments], tmp_path / "origin")
    source = f"git+{(tmp_path / 'origin').as_uri()}@main#subdirectory=modules/tool-x"

    path = await ModuleActivator(cache_dir).activate("tool-x", source)

    assert path.is_relative_to(cache_dir / "git")
    assert (path / "amplifier_module_tool_x").is_dir()


async def test_errors_come_through_as_they_are(cache_dir: Path, stand_in_installer: Path, make_module: Any) -> None:
    (stand_in_installer.parent / "fail").touch()
    activator = ModuleActivator(cache_dir)

    with pytest.raises(BundleNotFoundError):
        await activator.activate("tool-x", "/does/not/exist")
    with pytest.raises(subprocess.CalledProcessError):
        await activator.activate("tool-x", str(make_module("tool-x", "thing")))


async def test_a_failing_module_is_logged_and_missing(
    cache_dir: Path, make_module: Any, caplog: pytest.LogCaptureFixture
) -> None:
    folder = make_module("tool-x")
    modules = [
        {"module": "tool-gone", "source": "/does/not/exist"},
        {"module": "tool-x", "source": "/gone"},
        {"module": "tool-x", "source": str(folder)},
        {"module": "tool-bare"},
    ]

    assert await ModuleActivator(cache_dir).activate_all(modules) == {"tool-x": folder}
    assert "tool-gone" in caplog.text


async def test_a_strict_activation_names_every_failure(cache_dir: Path, make_module: Any) -> None:
    modules = [
        {"module": "tool-gone", "source": "/does/not/exist"},
        {"module": "tool-x", "source": str(make_module("tool-x"))},
        {"module": "tool-lost", "source": "/nor/this"},
    ]

    with pytest.raises(ModuleActivationError, match="2 of 3 modules failed to activate") as caught:
        await ModuleActivator(cache_dir, strict=True).activate_all(modules)

    assert isinstance(caught.value, BundleError)
    for text in ("tool-gone", "/does/not/exist", "tool-lost", "/nor/this"):
        assert text in str(caught.value)


async def test_a_bundles_own_package_is_used_in_place(
    tmp_path: Path, cache_dir: Path, stand_in_installer: Path
) -> None:
    for name in ("src", "lib"):
        (tmp_path / "b" / name).mkdir(parents=True)
    (tmp_path / "b" / "pyproject.toml").write_text('[project]\nname = "my-bundle"\ndependencies = ["thing"]\n')
    activator = ModuleActivator(cache_dir)
    told: list[tuple[str, str]] = []

    await activator.activate_bundle_package(tmp_path / "b", lambda *step: told.append(step))

    paths = [str(tmp_path / "b" / "src"), str(tmp_path / "b" / "lib")]
    assert activator.bundle_package_paths == paths
    assert sys.path[:3] == [*paths, str(environments(cache_dir)[0])]
    assert told == [("installing_package", "my-bundle")]


@pytest.mark.parametrize("pyproject", [None, "[tool.x]\n", '[project]\nname = "Pydantic"\n'])
async def test_without_a_package_or_with_an_installed_one_there_is_nothing_to_do(
    tmp_path: Path, cache_dir: Path, pyproject: str | None
) -> None:
    (tmp_path / "src").mkdir()
    if pyproject is not None:
        (tmp_path / "pyproject.toml").write_text(pyproject)
    activator = ModuleActivator(cache_dir)

    await activator.activate_bundle_package(tmp_path)
    await activator.activate_bundle_package(tmp_path / "missing")

    assert activator.bundle_package_paths == []


async def test_bundles_with_other_versions_of_a_module_and_of_a_package_run_side_by_side(
    tmp_path: Path, cache_dir: Path, make_wheel: Any, make_module: Any
) -> None:
    folders = []
    for version in ("1.0", "2.0"):
        make_wheel("leftpad", version)
        folder = make_module("tool-use", f"leftpad=={version}", where=f"v{version}")
        (folder / "amplifier_module_tool_use" / "__init__.py").write_text(
            "import leftpad\n\n\nclass Tool:\n    name = 'use'\n    description = 'use'\n"
            "    async def execute(self, input): ...\n\n\n"
            "async def mount(coordinator, config=None):\n"
            f"    coordinator.register_capability('use', ('module {version}', leftpad.VERSION))\n"
            "    await coordinator.mount('tools', Tool())\n"
        )
        folders.append(folder)
    bundles = [Bundle(folder.parent.name, tools=[{"module": "tool-use", "source": str(folder)}]) for folder in folders]

    await asyncio.gather(*(bundle.prepare(strict=True, cache_dir=cache_dir) for bundle in bundles))
    answers = []
    for folder in folders:
        answers.append(run([sys.executable, "-c", RUN, str(folder), str(cache_dir)]))

    assert len(environments(cache_dir)) == 2
    assert answers == ["('module 1.0', '1.0')", "('module 2.0', '2.0')"]


async def test_an_activation_is_announced_before_its_source_is_fetched(tmp_path: Path, cache_dir: Path) -> None:
    told: list[tuple[str, str]] = []

    with pytest.raises(BundleNotFoundError):
        await ModuleActivator(cache_dir).activate("tool-x", str(tmp_path / "gone"), lambda *step: told.append(step))

    assert told == [("activating", "tool-x")]


async def test_a_published_module_gets_the_version_it_asks_for_where_only_ours_brought_another(
    cache_dir: Path, make_wheel: Any, make_module: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_wheel("primp", "0.15.0")
    make_wheel("ddgs", "9.10.0", ("primp>=0.15.0,<1.0.0",))
    folder = make_module("tool-web", "primp>=0.15.0,<1.0.0", "ddgs>=9")
    monkeypatch.delitem(sys.modules, "primp", raising=False)
    bundle = Bundle("b", session={"context": "context-simple"}, tools=[{"module": "tool-web", "source": str(folder)}])

    await bundle.prepare(strict=True, cache_dir=cache_dir)

    (environment,) = environments(cache_dir)
    assert {path.name for path in environment.glob("*.dist-info")} == {
        "primp-0.15.0.dist-info",
        "ddgs-9.10.0.dist-info",
    }


@pytest.mark.usefixtures("installer")
async def test_where_ours_runs_beside_it_both_constraints_and_the_way_on_are_told(
    cache_dir: Path, make_wheel: Any, make_module: Any
) -> None:
    make_wheel("primp", "0.15.0")
    folder = make_module("tool-browse", "primp>=0.15.0,<1.0.0")
    tools = [{"module": "tool-web"}, {"module": "tool-browse", "source": str(folder)}]

    with pytest.raises(ModuleActivationError) as caught:
        await Bundle("b", tools=tools).prepare(strict=True, cache_dir=cache_dir)

    told = str(caught.value)
    has = importlib.metadata.version("primp")
    assert f"tool-browse requires primp>=0.15.0,<1.0.0; the host provides primp=={has} (required by ddgs)" in told
    assert "fix: loosen one of these requirements, use versions of the modules that agree, or" in told
