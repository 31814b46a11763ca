"""Packages that are used where they lie: the bundle's own, and the modules beside each other."""

import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_foundation.bundle import Bundle
from amplifier_foundation.modules import ModuleActivator
from amplifier_foundation.modules.activator import InPlacePackages
from amplifier_foundation.updates import update_bundle


def runs_of(installer: Path) -> int:
    return len(installer.read_text().split()) if installer.exists() else 0


def write_package(root: Path, name: str, where: str, rest: str = "dependencies = []") -> Path:
    """Write a bundle's own package below `where` and return the bundle's folder."""
    package = root / where / name.replace("-", "_")
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (root / "pyproject.toml").write_text(f'[project]\nname = "{name}"\nversion = "1.0"\n{rest}\n')
    return root


@pytest.mark.parametrize("where", ["lib", "src", "."])
async def test_a_module_may_require_its_bundles_own_package(
    tmp_path: Path, cache_dir: Path, stand_in_installer: Path, make_module: Any, where: str
) -> None:
    root = write_package(tmp_path / "bundle", "private-package", where)
    module = make_module("tool-own", "Private_Package>=1", "amplifier-module-tool-beside", imports="private_package")
    beside = make_module("tool-beside")
    tools = [{"module": "tool-own", "source": str(module)}, {"module": "tool-beside", "source": str(beside)}]
    bundle = Bundle("b", base_path=root, tools=tools, session={"orchestrator": "loop-basic"})

    prepared = await bundle.prepare(strict=True, cache_dir=cache_dir)

    place = str((root / where).resolve())
    assert prepared.bundle_package_paths == [place]
    assert place in sys.path
    assert runs_of(stand_in_installer) == 0, "an installer was asked for a name that only this bundle knows"


async def test_what_an_extra_of_the_bundles_package_needs_is_installed(
    tmp_path: Path, cache_dir: Path, stand_in_installer: Path, make_module: Any
) -> None:
    extras = 'dependencies = []\n[project.optional-dependencies]\nweb = ["private-package[net]"]\nnet = ["thing"]'
    root = write_package(tmp_path / "bundle", "private-package", "src", extras)
    activator = ModuleActivator(cache_dir)

    await activator.activate_bundle_package(root)
    await activator.activate("tool-own", str(make_module("tool-own", "private-package[web]")))

    assert runs_of(stand_in_installer) == 1


async def test_an_update_asks_no_installer_for_the_bundles_own_package(
    tmp_path: Path, cache_dir: Path, stand_in_installer: Path, make_module: Any, git_source: Any
) -> None:
    root = write_package(tmp_path / "bundle", "private-package", "src")
    source = git_source(make_module("tool-own", "private-package"))
    bundle = Bundle("b", base_path=root, tools=[{"module": "tool-own", "source": source}])

    await update_bundle(bundle, cache_dir, selective=[source])

    assert runs_of(stand_in_installer) == 0


async def test_a_package_that_the_host_provides_is_never_taken_from_a_bundle(tmp_path: Path, cache_dir: Path) -> None:
    root = write_package(tmp_path / "bundle", "amplifier-foundation", ".")
    activator = ModuleActivator(cache_dir)

    await activator.activate_bundle_package(root)

    assert activator.bundle_package_paths == []
    assert str(root) not in sys.path


def test_requirements_are_left_as_they_are_when_nothing_is_in_place() -> None:
    in_place = InPlacePackages()
    assert in_place.without(("thing>=1", "other[x]")) == ("thing>=1", "other[x]")
    in_place.add("Other", {})
    assert in_place.without(("thing>=1", "other[x]")) == ("thing>=1",)
