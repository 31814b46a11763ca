"""The command as people call it: in a process of its own, or in this one where only its words count.

The processes are forked from one that has imported the command already; `executable` starts a new interpreter.
"""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import warm_python
from daemon_home import served_home
from terminal import in_terminal, in_warm_terminal

_OWN = ("AMPLIFIER", "ANTHROPIC_", "OPENAI_", "PYTEST_")


@dataclass
class Amplifier:
    """The real command, in a home and a working directory of a test."""

    home: Path
    work: Path
    keeper: warm_python.Keeper
    is_warm: bool = True
    variables: dict[str, str] = field(default_factory=dict)
    started: list[warm_python.Popen] = field(default_factory=list)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
        own = {"AMPLIFIERD_HOME": str(self.home), "AMPLIFIERD_OFFLINE": "1", "NO_COLOR": "1", "COLUMNS": "80"}
        return {**kept, **own, **self.variables}

    def __call__(
        self, *arguments: str, stdin: str = "", variables: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end with pipes for a terminal."""
        environment = {**self.environment, **(variables or {})}
        options: Any = {"input": stdin, "cwd": cwd or self.work, "env": environment, "keeper": self.keeper}
        return warm_python.run(self.command(arguments), capture_output=True, text=True, timeout=60, **options)

    def start(self, *arguments: str) -> warm_python.Popen:
        """Start it with pipes, and with nothing to read; it is killed with the test."""
        streams: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        process = warm_python.Popen(
            self.command(arguments), cwd=self.work, env=self.environment, keeper=self.keeper, **streams
        )
        self.started.append(process)
        return process

    def in_terminal(self, arguments: Sequence[str], environment: Mapping[str, str], columns: int) -> Any:
        if not self.is_warm:
            return in_terminal(self.command(arguments), cwd=self.work, environment=environment, columns=columns)
        terminal = in_warm_terminal(self.command(arguments), self.keeper, self.work, environment, columns)
        self.started.append(terminal.process)
        return terminal

    def executable(self, *arguments: str, variables: Mapping[str, str] | None = None) -> Any:
        """Run it to its end in a new interpreter."""
        environment = {**self.environment, **(variables or {})}
        options: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "timeout": 60}
        return subprocess.run(self.command(arguments), cwd=self.work, env=environment, check=False, **options)

    @staticmethod
    def command(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "amplifier_cli", *arguments]


@pytest.fixture(scope="session")
def keeper() -> warm_python.Keeper:
    return warm_python.shared_keeper()


@pytest.fixture
def amplifier(tmp_path: Path, keeper: warm_python.Keeper) -> Iterator[Amplifier]:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.md").write_text("# Notes\n\n- buy milk\n")
    amplifier = Amplifier(tmp_path / "home", work, keeper)
    yield amplifier
    for process in amplifier.started:
        process.kill()
        with process:  # closes its pipes
            pass


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home that a daemon serves, for all tests that leave the daemon running."""
    home = tmp_path_factory.mktemp("served") / "home"
    with served_home(home):
        yield home


@dataclass(frozen=True)
class Said:
    """What the command said in this process, and its exit code."""

    code: int
    out: str
    err: str


@pytest.fixture
def say(
    amplifier: Amplifier, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Returns a function that calls the command in this process, which is quicker."""
    from amplifier_cli.main import main

    for name in [name for name in os.environ if name.startswith(_OWN[:3])]:
        monkeypatch.delenv(name)
    for name in ("AMPLIFIERD_HOME", "AMPLIFIERD_OFFLINE", "NO_COLOR", "COLUMNS"):
        monkeypatch.setenv(name, amplifier.environment[name])
    monkeypatch.chdir(amplifier.work)

    def call(*arguments: str, stdin: str = "") -> Said:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = main(arguments)
        told = capsys.readouterr()
        return Said(code, told.out, told.err)

    return call
