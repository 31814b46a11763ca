"""A package index on disk, modules that need what is in it, and a cache of their own."""

import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from package_index import PackageIndex

MakeWheel = Callable[..., Path]
MakeModule = Callable[..., Path]


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PackageIndex:
    return PackageIndex(tmp_path / "index", monkeypatch)


@pytest.fixture
def index(packages: PackageIndex) -> Path:
    """The only place installers may install from."""
    return packages.directory


@pytest.fixture
def without_uv(packages: PackageIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave pip to install with, as where the command uv is missing."""
    places = [place for place in os.environ["PATH"].split(os.pathsep) if not Path(place, "uv").exists()]
    monkeypatch.setenv("PATH", os.pathsep.join(places))


@pytest.fixture(params=["uv", "pip"])
def installer(request: pytest.FixtureRequest, packages: PackageIndex) -> None:
    """Each installer in turn."""
    if request.param == "pip":
        request.getfixturevalue("without_uv")


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def make_wheel(packages: PackageIndex) -> MakeWheel:
    return packages.add


@pytest.fixture
def make_module(tmp_path: Path) -> MakeModule:
    """Write a tool module with the given requirements; its package imports `imports`."""

    def make(module_id: str, *requirements: str, imports: str = "", where: str = "modules") -> Path:
        folder = tmp_path / where / module_id
        package = folder / f"amplifier_module_{module_id.replace('-', '_')}"
        package.mkdir(parents=True)
        lines = ", ".join(f'"{line}"' for line in requirements)
        (folder / "pyproject.toml").write_text(
            f'[project]\nname = "amplifier-module-{module_id}"\nversion = "1"\ndependencies = [{lines}]\n'
        )
        (package / "__init__.py").write_text(
            f"{f'import {imports}' if imports else ''}\n\nasync def mount(coordinator, config=None):\n    return None\n"
        )
        return folder

    return make


@pytest.fixture
def stand_in_installer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command `uv` that notes its runs in the returned file and takes its orders from files beside it.

    It installs one empty distribution. With a file `stay` it then starts a child and stays; with `fail` it fails.
    """
    directory = tmp_path / "bin"
    directory.mkdir()
    command = directory / "uv"
    command.write_text(
        f"""#!/bin/sh
here={shlex.quote(str(directory))}
echo run >> "$here/runs"
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/thing-1.0.dist-info"
: > "$2/thing.py"
if [ -e "$here/stay" ]; then
    sleep 60 &
    : > "$here/staying"
    wait
fi
if [ -e "$here/fail" ]; then echo "error: no such thing" >&2; exit 1; fi
"""
    )
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    return directory / "runs"


@pytest.fixture(autouse=True)
def same_sys_path() -> Iterator[None]:
    before = list(sys.path)
    yield
    sys.path[:] = before


@pytest.fixture
def git_source() -> Callable[[Path], str]:
    """Put a folder under version control and return its source."""
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "init.defaultBranch=main"]

    def commit(folder: Path) -> str:
        for arguments in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "state"]):
            subprocess.run([*git, *arguments], cwd=folder, check=True, capture_output=True)
        return f"git+{folder.as_uri()}@main"

    return commit
