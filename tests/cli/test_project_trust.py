"""The settings of a project count after one question, and never without it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from terminal import Terminal


@pytest.fixture
def project(amplifier: Any) -> Any:
    """A project that chooses an agent of its own."""
    (amplifier.work / ".amplifier").mkdir()
    (amplifier.work / ".amplifier/settings.yaml").write_text("profile: foundation/offline\nshow_thinking: false\n")
    return amplifier


def test_a_yes_is_remembered(project: Any) -> None:
    terminal = Terminal(project, "run", "read notes.md")
    terminal.expect("has settings of its own: settings.yaml")
    terminal.expect("Trust this folder?")
    terminal.type("y")
    terminal.expect("buy milk")
    assert terminal.end() == 0

    again = Terminal(project, "run", "read notes.md")
    again.expect("buy milk")
    assert again.end() == 0
    assert "Trust this folder?" not in again.read
    assert json.loads(project("config", "get", "profile", "--json").stdout)["from"] == "project"


def test_a_no_is_remembered_too_and_the_settings_have_no_effect(project: Any) -> None:
    terminal = Terminal(project, "run", "--profile", "offline", "read notes.md")
    terminal.expect("Trust this folder?")
    terminal.type("n")
    terminal.expect("its settings have no effect: amplifier config trust")
    terminal.expect("buy milk")
    assert terminal.end() == 0

    again = Terminal(project, "run", "--profile", "offline", "read notes.md")
    again.expect("is not trusted")
    again.expect("buy milk")
    assert again.end() == 0
    assert "Trust this folder?" not in again.read
    assert json.loads(project("config", "get", "show_thinking", "--json").stdout)["value"] is True


def test_without_a_terminal_nobody_is_asked_and_a_note_says_so(project: Any) -> None:
    run = project("run", "--profile", "offline", "read notes.md")

    assert run.returncode == 0
    assert "buy milk" in run.stdout
    assert "is not trusted, so its settings have no effect" in run.stderr
    assert not (project.home / "config/trust.json").exists()
