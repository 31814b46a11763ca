"""The command as people call it: in a process of its own, or in this one where only its words count."""

import io
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

_OWN = ("AMPLIFIER", "ANTHROPIC_", "OPENAI_", "PYTEST_")


@dataclass
class Amplifier:
    """The real command, in a home and a working directory of a test."""

    home: Path
    work: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
        own = {"AMPLIFIERD_HOME": str(self.home), "AMPLIFIERD_OFFLINE": "1", "NO_COLOR": "1", "COLUMNS": "80"}
        return {**kept, **own, **self.variables}

    def __call__(
        self, *arguments: str, stdin: str = "", variables: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end with pipes for a terminal."""
        return subprocess.run(
            self.command(arguments),
            input=stdin,
            cwd=cwd or self.work,
            env={**self.environment, **(variables or {})},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    @staticmethod
    def command(arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "amplifier_cli", *arguments]


@pytest.fixture
def amplifier(tmp_path: Path) -> Amplifier:
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.md").write_text("# Notes\n\n- buy milk\n")
    return Amplifier(tmp_path / "home", work)


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
