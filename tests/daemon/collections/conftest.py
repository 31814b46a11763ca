"""Real repositories reached over file://, a home of one's own, and a shipped collection to test with."""

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from git_repository import Repository, use_plain_git

from amplifierd import Home, open_home


def profile_text(name: str | None = None, *, extends: str = "", body: str = "Hello.", extra: str = "") -> str:
    """Return a complete profile."""
    lines = ["---", "profile:"]
    lines += [f"  name: {name}"] if name else []
    lines += ["  version: 1.0.0", "  schema_version: 2"]
    lines += [f"  extends: {extends}"] if extends else []
    lines += ["session:", "  orchestrator: loop-basic", extra, "---", body, ""]
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    use_plain_git(monkeypatch)


@pytest.fixture
def text() -> Callable[..., str]:
    return profile_text


@pytest.fixture
def new_repository(tmp_path: Path) -> Callable[..., Repository]:
    """Make repositories, each with a first commit."""

    def make(name: str = "origin", files: Mapping[str, str | None] | None = None) -> Repository:
        repository = Repository(tmp_path / "remote" / name)
        repository.commit(files or {"profiles/base.md": profile_text("base"), "README.md": "Profiles.\n"})
        return repository

    return make


@pytest.fixture
def repository(new_repository: Callable[..., Repository]) -> Repository:
    return new_repository()


@pytest.fixture
def shipped(tmp_path: Path) -> Path:
    """A collection that plays the one shipped with the distribution."""
    root = tmp_path / "shipped"
    (root / "profiles").mkdir(parents=True)
    (root / "profiles" / "core.md").write_text(profile_text("core"))
    return root


@pytest.fixture
def new_home(tmp_path: Path, shipped: Path) -> Callable[..., Home]:
    """Open the test's home; what is synced is extracted and not compiled."""

    def make(**options: Any) -> Home:
        overrides = {"startup": {"auto_compile": False}}
        given = {"shipped_collection": shipped, "overrides": overrides, **options}
        return open_home(tmp_path / "home", **given)

    return make


@pytest.fixture
def home(new_home: Callable[..., Home]) -> Home:
    return new_home()


@pytest.fixture
def register(home: Home) -> Callable[[str], None]:
    """Write `collections.yaml` as a person would."""

    def write(content: str) -> None:
        home.paths.share.mkdir(parents=True, exist_ok=True)
        home.paths.collections_file.write_text(content)

    return write


@pytest.fixture
def git_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Return the git commands that were run from now on, by a `git` that comes first on the path and notes them."""
    real = subprocess.run(
        ["/bin/sh", "-c", "command -v git"], check=True, capture_output=True, text=True
    ).stdout.strip()
    log, folder = tmp_path / "git-calls", tmp_path / "bin"
    folder.mkdir()
    log.touch()
    wrapper = folder / "git"
    wrapper.write_text(f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{log}"\nexec "{real}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return lambda: log.read_text().splitlines()


@pytest.fixture
def snapshot(home: Home) -> Callable[[], dict[str, tuple[int, int]]]:
    """Return inode and time of change of everything in `share/`."""

    def take() -> dict[str, tuple[int, int]]:
        files = sorted(home.paths.share.rglob("*"))
        return {str(path): (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in files}

    return take
