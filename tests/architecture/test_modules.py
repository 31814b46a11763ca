"""Every folder in `modules/` keeps the rules of `modules/README.md`."""

import runpy
import shutil
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from amplifier_core import __version__

ROOT = Path(__file__).parents[2]
ALIASES = {"hooks-redaction": ["hook-redaction"]}  # the names that other bundles know modules by

PYPROJECT = """
[project]
name = "amplifier-module-tool-echo"
version = "1.2.3"
[project.entry-points."amplifier.modules"]
tool-echo = "amplifier_module_tool_echo:mount"
"""


def breaches(folder: Path, *, root_packages: list[str], version: str) -> Iterator[str]:
    """Yield one sentence for every rule that a module's folder breaks."""
    package = f"amplifier_module_{folder.name.replace('-', '_')}"
    for file in ("README.md", "pyproject.toml", f"{package}/__init__.py"):
        if not (folder / file).is_file():
            yield f"{folder.name}: {file} is missing"
    if package not in root_packages:
        yield f"{folder.name}: {package} is not in import-linter's root_packages"
    if not (folder / "pyproject.toml").is_file():
        return
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    rules = {
        "name": (project.get("name"), f"amplifier-module-{folder.name}"),
        "version": (project.get("version"), version),
        "entry-points.'amplifier.modules'": (
            project.get("entry-points", {}).get("amplifier.modules"),
            {each: f"{package}:mount" for each in (folder.name, *ALIASES.get(folder.name, ()))},
        ),
    }
    for key, (actual, expected) in rules.items():
        if actual != expected:
            yield f"{folder.name}: project.{key} is {actual!r}, expected {expected!r}"


def import_contracts(root: Path) -> dict[str, Any]:
    """Return what `make imports` hands to import-linter for the repository at `root`."""
    written = runpy.run_path(str(root / "scripts/check_imports.py"))["configuration"](root)
    contracts: dict[str, Any] = tomllib.loads(written)["tool"]["importlinter"]
    return contracts


def test_every_module_folder_is_under_contract() -> None:
    root_packages = import_contracts(ROOT)["root_packages"]
    folders = sorted(path for path in (ROOT / "modules").iterdir() if path.is_dir())

    found = [b for folder in folders for b in breaches(folder, root_packages=root_packages, version=__version__)]

    assert found == []


def test_every_module_is_an_entry_point_of_the_installed_distribution() -> None:
    installed = {point.name for point in entry_points(group="amplifier.modules") if point.dist.name == "amplifier"}

    folders = {path.parent.name for path in (ROOT / "modules").glob("*/pyproject.toml")}
    assert installed == {each for name in folders for each in (name, *ALIASES.get(name, ()))}


def test_adding_a_module_is_adding_its_folder(tmp_path: Path, folder: Path) -> None:
    repository = tmp_path / "repository"
    for name in ("modules", "registry", "scripts", "src"):
        shutil.copytree(ROOT / name, repository / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("hatch_build.py", "LICENSE", "pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, repository)
    shutil.move(folder, repository / "modules")

    contracts = import_contracts(repository)
    build = "from hatchling.build import build_wheel; print(build_wheel('dist'))"
    run = subprocess.run([sys.executable, "-c", build], cwd=repository, capture_output=True, text=True, check=True)

    assert "amplifier_module_tool_echo" in contracts["root_packages"]
    layers = [layer for table in contracts["contracts"] for layer in table.get("layers", ())]
    assert any("| amplifier_module_tool_echo |" in layer for layer in layers)
    with zipfile.ZipFile(repository / "dist" / run.stdout.split()[-1]) as wheel:
        declared = ConfigParser()
        declared.read_string(wheel.read(f"amplifier-{__version__}.dist-info/entry_points.txt").decode())
        assert declared["amplifier.modules"]["tool-echo"] == "amplifier_module_tool_echo:mount"
        assert declared["pytest11"] == {"amplifier_module": "amplifier_core.pytest_plugin"}
        folders = len(list((repository / "modules").glob("*/pyproject.toml")))
        assert len(declared["amplifier.modules"]) == folders + sum(map(len, ALIASES.values()))
        packages = {name.partition("/")[0] for name in wheel.namelist() if name.endswith("/__init__.py")}
        assert packages == {path.parent.name for path in repository.glob("src/*/__init__.py")} | {
            value.partition(":")[0] for value in declared["amplifier.modules"].values()
        }


def test_the_distributions_extras_are_what_the_modules_of_that_name_need() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras, always = project["optional-dependencies"], set(project["dependencies"])
    needs = {
        path.parent.name: tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"]
        for path in (ROOT / "modules").glob("*/pyproject.toml")
    }
    of_our_own = {"keyring", "postgres"}
    offered = {
        extra: sorted(packages) for extra, packages in extras.items() if extra not in {"all", "dev", *of_our_own}
    }

    assert offered == {
        module.partition("-")[2]: sorted(packages) for module, packages in needs.items() if set(packages) - always
    }
    assert extras["all"] == [f"amplifier[{','.join(sorted({*offered, *of_our_own}))}]"]


def test_a_module_declares_the_packages_that_it_needs_where_the_command_looks_for_them() -> None:
    declaring = set[str]()
    for path in (ROOT / "modules").glob("*/pyproject.toml"):
        needs = tomllib.loads(path.read_text(encoding="utf-8"))["project"]["dependencies"]
        (declaration,) = [*path.parent.glob("*/runtime.toml")] or [None]
        declared = tomllib.loads(declaration.read_text(encoding="utf-8")) if declaration else {}
        if "requires" in declared:
            declaring.add(path.parent.name)
            assert sorted(declared["requires"]) == sorted(needs), path
    assert {"provider-anthropic", "provider-openai", "tool-mcp", "tool-web"} <= declaring


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A module folder that keeps every rule."""
    folder = tmp_path / "tool-echo"
    (folder / "amplifier_module_tool_echo").mkdir(parents=True)
    (folder / "amplifier_module_tool_echo/__init__.py").touch()
    (folder / "README.md").touch()
    (folder / "pyproject.toml").write_text(PYPROJECT)
    return folder


def test_a_folder_that_keeps_the_rules_has_no_breach(folder: Path) -> None:
    assert list(breaches(folder, root_packages=["amplifier_module_tool_echo"], version="1.2.3")) == []


def test_a_folder_that_breaks_the_rules_is_told_each_of_them(folder: Path) -> None:
    (folder / "README.md").unlink()
    (folder / "pyproject.toml").write_text(PYPROJECT.replace("echo:mount", "echo:start"))

    found = list(breaches(folder, root_packages=[], version="1.2.4"))

    assert found == [
        "tool-echo: README.md is missing",
        "tool-echo: amplifier_module_tool_echo is not in import-linter's root_packages",
        "tool-echo: project.version is '1.2.3', expected '1.2.4'",
        "tool-echo: project.entry-points.'amplifier.modules' is {'tool-echo': 'amplifier_module_tool_echo:start'}, "
        "expected {'tool-echo': 'amplifier_module_tool_echo:mount'}",
    ]


def test_an_empty_folder_is_told_what_to_add(tmp_path: Path) -> None:
    assert (
        list(breaches(tmp_path, root_packages=[], version="1.2.3"))[1] == f"{tmp_path.name}: pyproject.toml is missing"
    )
