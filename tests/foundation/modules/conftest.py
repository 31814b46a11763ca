"""A package index on disk, modules that need what is in it, and a cache of their own."""

import base64
import hashlib
import os
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

sys.path.append(str(Path(__file__).parents[2] / "stand_ins"))

MakeWheel = Callable[..., Path]
MakeModule = Callable[..., Path]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only place installers may install from."""
    directory = tmp_path / "index"
    directory.mkdir()
    for name, value in {"NO_INDEX": "1", "FIND_LINKS": str(directory)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
        monkeypatch.setenv(f"UV_{name}", value)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return directory


@pytest.fixture
def cache_dir(tmp_path: Path) -> Path:
    return tmp_path / "cache"


@pytest.fixture
def make_wheel(index: Path) -> MakeWheel:
    """Put a distribution into the index: one module of its own name that says its version."""

    def make(
        name: str,
        version: str,
        requires: tuple[str, ...] = (),
        code: str = "",
        more: Mapping[str, bytes] = MappingProxyType({}),
    ) -> Path:
        info = f"{name}-{version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        texts = {
            f"{name}.py": code or f"VERSION = {version!r}\n",
            f"{info}/METADATA": metadata + "".join(f"Requires-Dist: {line}\n" for line in requires),
            f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        }
        contents = {path: text.encode() for path, text in texts.items()} | more
        wheel = index / f"{name}-{version}-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            record = ""
            for path, content in contents.items():
                archive.writestr(path, content)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                record += f"{path},sha256={digest},{len(content)}\n"
            archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
        return wheel

    return make


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
