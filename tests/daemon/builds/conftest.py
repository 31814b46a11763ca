"""Homes of their own, real repositories over file://, modules, and a package index on disk."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from git_repository import Repository, use_plain_git, write_files
from package_index import PackageIndex

from amplifierd import Home, open_home

Files = Mapping[str, str | bytes]

MOUNT = "async def mount(coordinator, config=None):\n    return None\n"


class Bench:
    """A home, and what its profiles are made of."""

    def __init__(self, tmp_path: Path, home: Home) -> None:
        self.tmp_path, self.home = tmp_path, home

    def reopen(self, **overrides: Any) -> Home:
        """Open the home anew, with settings."""
        self.home = open_test_home(self.home.paths.home, **overrides)
        return self.home

    def write_profile(self, name: str = "mine", text: str | None = None, *, body: str = "", **sections: Any) -> Path:
        """Write a profile of the user's own; it has the installed loop and context unless it says otherwise."""
        path = self.home.paths.own_profiles / name / "profile.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text if text is not None else profile_text(name, body=body, **sections))
        return path

    def write_module(
        self, module_id: str, files: Files | None = None, *, requires: Sequence[str] = (), where: str = "modules"
    ) -> str:
        """Write a module's folder, and return the reference to it."""
        folder = self.tmp_path / where / module_id
        write_files(folder, module_files(module_id, files, requires=requires))
        return str(folder)

    def open_home(self, path: Path) -> Home:
        return open_test_home(path)

    def write_files(self, root: Path, files: Files) -> None:
        write_files(root, files)

    def module_files(self, module_id: str, files: Files | None = None, **options: Any) -> dict[str, str | bytes]:
        return module_files(module_id, files, **options)

    def profile_text(self, name: str, **options: Any) -> str:
        return profile_text(name, **options)

    def lock(self, profile_id: str = "local/mine") -> dict[str, Any]:
        """Return the lock of the published build."""
        stored: dict[str, Any] = json.loads((self.home.paths.profile_dir(profile_id) / "profile.lock").read_text())
        return stored


def open_test_home(path: Path, **overrides: Any) -> Home:
    shipped = path.parent / "shipped"
    shipped.mkdir(parents=True, exist_ok=True)
    return open_home(path, overrides=overrides, shipped_collection=shipped)


def module_files(module_id: str, files: Files | None = None, *, requires: Sequence[str] = ()) -> dict[str, str | bytes]:
    """Return the files of a module's folder."""
    package = f"amplifier_module_{module_id.replace('-', '_')}"
    lines = ", ".join(f'"{line}"' for line in requires)
    project = f'[project]\nname = "amplifier-module-{module_id}"\nversion = "1"\ndependencies = [{lines}]\n'
    return {"pyproject.toml": project, f"{package}/__init__.py": MOUNT, **(files or {})}


def profile_text(name: str, *, body: str = "", extends: str | None = None, **sections: Any) -> str:
    profile = {"name": name, "version": "1.0.0", "schema_version": 2}
    session = {"orchestrator": {"module": "loop-basic"}, "context": {"module": "context-simple"}}
    front = {"profile": profile | ({"extends": extends} if extends else {})}
    front |= {} if extends else {"session": session, "providers": [{"module": "provider-mock"}]}
    return f"---\n{json.dumps(front | sections, indent=1)}\n---\n{body}"


@pytest.fixture(autouse=True)
def plain_git(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_git(monkeypatch)


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, open_test_home(tmp_path / "home"))


@pytest.fixture
def new_repository(tmp_path: Path) -> Callable[..., Repository]:
    """Make repositories, each with a first commit."""

    def make(name: str, files: Files) -> Repository:
        repository = Repository(tmp_path / "remote" / name)
        repository.commit(files)
        return repository

    return make


@pytest.fixture
def make_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Put a distribution into the only index that installers may use."""
    return PackageIndex(tmp_path / "index", monkeypatch).add


class Activity:
    """What this process does to files and processes, noted while it is watched."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self.opened: list[str] = []
        self.started: list[str] = []
        self._is_watching = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Forget what was noted, and note what happens inside of the block."""
        self.written, self.opened, self.started = [], [], []
        self._is_watching = True
        try:
            yield
        finally:
            self._is_watching = False

    def note(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._is_watching:
            return
        if event == "open" and isinstance(args[0], str | bytes):
            self.opened.append(os.fsdecode(args[0]))
            if args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                self.written.append(os.fsdecode(args[0]))
        elif event in ("os.rename", "os.mkdir", "os.link", "os.symlink", "os.remove", "os.rmdir", "os.truncate"):
            self.written.append(os.fsdecode(args[0]))
        elif event == "subprocess.Popen":
            self.started.append(str(args[0]))


_activity = Activity()
sys.addaudithook(_activity.note)  # a hook cannot be removed, so there is one for all tests


@pytest.fixture
def activity() -> Activity:
    return _activity
