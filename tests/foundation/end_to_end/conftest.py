"""Repositories that are made quickly, a `git` that notes its calls and can be made to wait, and real processes."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import warm_python
from processes import Started, leaving_nothing

PREPARE = """
import asyncio, json, sys
from pathlib import Path

started = []
sys.addaudithook(lambda event, args: started.append(event) if event in ("subprocess.Popen", "os.posix_spawn") else None)

from amplifier_foundation import BundleRegistry, load_bundle

async def main(home, source):
    registry = BundleRegistry(Path(home), strict=True)
    bundle = await load_bundle(source, registry=registry)
    prepared = await bundle.prepare(strict=True, cache_dir=registry.home / "cache")
    async with prepared.create_session() as session:
        answer = await session.execute("Hello!")
        modules = sorted(session.coordinator.get("tools"))
    print(json.dumps({"answer": answer, "tools": modules, "started": len(started)}))

asyncio.run(main(*sys.argv[1:]))
"""
"""A program that prepares a bundle, lets it answer, and says what it is made of and how many processes that took."""

PATIENCE_S = 15.0

Files = Mapping[str, str]
Commit = Callable[..., str]


class Git:
    """A `git` that comes first on the path: it notes its calls, and its fetches wait while the gate is closed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder.mkdir()
        self._log, self._gate, self.real = folder / "log", folder / "gate", shutil.which("git") or "git"
        self._log.touch()
        wrapper = folder / "git"
        wrapper.write_text(
            f'#!/bin/sh\nprintf "%s\\n" "$*" >> "{self._log}"\n'
            f'case " $* " in *" fetch "*) while [ -e "{self._gate}" ]; do sleep 0.02; done;; esac\n'
            f'exec "{self.real}" "$@"\n'
        )
        wrapper.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def close_gate(self) -> None:
        self._gate.touch()

    def open_gate(self) -> None:
        self._gate.unlink()

    def calls(self, command: str = "") -> list[str]:
        return [line for line in self._log.read_text().splitlines() if f" {command}" in f" {line} "]

    def wait_for_fetches(self, count: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.calls("fetch ")) < count:
            assert time.monotonic() < deadline, f"only {self.calls()} was run"
            time.sleep(0.01)


@pytest.fixture(autouse=True)
def plain_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Git and the foundation as they come, whoever runs the tests."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "AMPLIFIERD_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("AMPLIFIER_HOME", str(tmp_path / "home"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(scope="session")
def commit() -> Commit:
    """Make or change a repository and return its source; `tag` marks the commit."""
    real = shutil.which("git") or "git"
    environment = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}

    def make(path: Path, files: Files, *, tag: str = "") -> str:
        if not path.exists():
            init = [real, "init", "--quiet", "--bare", "--template=", "-b", "main", str(path)]
            subprocess.run(init, check=True, env=environment)
        lines = ["commit refs/heads/main", "committer A Tester <tester@example.invalid> 1700000000 +0000"]
        lines += [f"data {len(path.name)}", path.name, "deleteall"]
        for file, text in files.items():
            lines += [f"M 100644 inline {file}", f"data {len(text.encode())}", text]
        lines += [f"reset refs/tags/{tag}", "from refs/heads/main", ""] if tag else [""]
        fast_import = [real, "fast-import", "--quiet", "--force"]
        subprocess.run(fast_import, cwd=path, input="\n".join(lines).encode(), check=True, env=environment)
        return f"git+{path.as_uri()}@{tag or 'main'}"

    return make


@pytest.fixture
def repository(tmp_path: Path, commit: Commit) -> Callable[..., str]:
    """Make or change a repository by name and return its source."""
    return lambda name, files, tag="": commit(tmp_path / "remote" / name, files, tag=tag)


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    return Git(tmp_path / "noting", monkeypatch)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Whatever is started; the test fails if something of it is left."""
    with leaving_nothing(monkeypatch) as started:
        yield started


class Preparation:
    """A process that prepares a bundle."""

    def __init__(self, home: Path, source: str, variables: Mapping[str, str]) -> None:
        pipe = subprocess.PIPE
        self.process = warm_python.Popen(
            [sys.executable, "-c", PREPARE, str(home), source],
            stdout=pipe,
            stderr=pipe,
            text=True,
            env={**os.environ, **variables},
        )

    def result(self) -> dict[str, Any]:
        output, errors = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, errors
        answer: dict[str, Any] = json.loads(output)
        return answer


@pytest.fixture
def preparing(home: Path) -> Iterator[Callable[..., Preparation]]:
    """Start a process that prepares a source in the one home; keywords are variables of its environment."""
    running: list[Preparation] = []

    def start(source: str, **variables: str) -> Preparation:
        running.append(Preparation(home, source, variables))
        return running[-1]

    yield start
    for preparation in running:
        with preparation.process as process:
            process.kill()


@pytest.fixture
def tool_repository(repository: Callable[..., str]) -> Callable[..., str]:
    """Make a repository with a module that mounts a tool, and return its source."""

    def make(module_id: str, *, tool: str, tag: str = "") -> str:
        files = {
            "pyproject.toml": f'[project]\nname = "amplifier-module-{module_id}"\nversion = "1"\ndependencies = []\n',
            f"amplifier_module_{module_id.replace('-', '_')}/__init__.py": (
                f"class Tool:\n    name = {tool!r}\n    description = {tool!r}\n\n"
                "    async def execute(self, input): ...\n\n\n"
                "async def mount(coordinator, config=None):\n    await coordinator.mount('tools', Tool())\n"
            ),
        }
        return repository(module_id, files, tag=tag)

    return make
