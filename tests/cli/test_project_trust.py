"""The settings of a project count after one question, and never without it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from terminal import Terminal

Say = Callable[..., Any]
HOOK = """\
__amplifier_module_type__ = "hook"

from amplifier_core import HookResult

async def mount(coordinator, config=None):
    async def note(event, data):
        with open(config["file"], "a") as file:
            file.write("ran\\n")
        return HookResult()

    coordinator.hooks.register("prompt:submit", note, name="note")
"""


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


@pytest.fixture
def overlaid(amplifier: Any) -> Any:
    """A project that brings a hook of its own to every agent, and takes a tool from one profile."""
    folder = amplifier.work / ".amplifier"
    package = folder / "modules/hooks-note/amplifier_module_hooks_note"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(HOOK)
    (folder / "overlay.md").write_text(
        "---\nhooks:\n- module: hooks-note\n  source: ./modules/hooks-note\n"
        f"  config: {{file: {amplifier.work / 'noted.txt'}}}\n---\n"
    )
    (folder / "overlays/foundation").mkdir(parents=True)
    (folder / "overlays/foundation/offline.md").write_text("---\nexclude: {tools: [tool-search]}\n---\n")
    return amplifier


def modules_of(say: Say, *arguments: str) -> list[str]:
    plan = json.loads(say("plan", "show", *arguments, "--json").out)
    return [entry["module"] for section in ("tools", "hooks") for entry in plan[section]]


def test_overlays_hooks_and_modules_of_a_project_count_once_it_is_trusted(overlaid: Any, say: Say) -> None:
    before = say("run", "--profile", "offline", "read notes.md")
    assert not (overlaid.work / "noted.txt").exists()
    assert "is not trusted, so its settings have no effect" in before.err
    assert "hooks-note" not in modules_of(say, "offline")
    assert "tool-search" in modules_of(say, "offline")

    say("config", "trust")
    after = say("run", "--profile", "offline", "read notes.md")

    assert (after.code, "buy milk" in after.out, after.err) == (0, True, "")
    assert (overlaid.work / "noted.txt").read_text() == "ran\n"
    assert "hooks-note" in modules_of(say, "offline")
    assert "tool-search" not in modules_of(say, "offline")
    assert say("run", "--resume", "last", "read notes.md").code == 0
    assert (overlaid.work / "noted.txt").read_text() == "ran\nran\n"


def test_a_mistake_in_an_overlay_is_told_with_file_and_line(overlaid: Any, say: Say) -> None:
    (overlaid.work / ".amplifier/overlay.md").write_text("---\nhooks:\n  hooks-note: {}\n---\n")
    say("config", "trust")

    said = say("run", "--profile", "offline", "Hi")

    assert said.code == 1
    assert ".amplifier/overlay.md:2" in said.err


def test_a_module_outside_of_the_projects_folder_is_not_loaded(overlaid: Any, say: Say, tmp_path: Path) -> None:
    overlay = overlaid.work / ".amplifier/overlay.md"
    (overlaid.work / ".amplifier/modules/hooks-note").rename(tmp_path / "hooks-note")
    overlay.write_text(overlay.read_text().replace("./modules/hooks-note", str(tmp_path / "hooks-note")))
    say("config", "trust")

    said = say("run", "--profile", "offline", "read notes.md")

    assert "hooks-note is missing" in said.err
    assert not (overlaid.work / "noted.txt").exists()


def test_the_question_names_overlays_and_commands_too(overlaid: Any) -> None:
    (overlaid.work / ".amplifier/commands").mkdir()
    (overlaid.work / ".amplifier/commands/look.md").write_text("Look.\n")
    terminal = Terminal(overlaid, "run", "--profile", "offline", "read notes.md")
    terminal.expect("settings of its own: overlay.md, overlays/foundation/offline.md, commands/look.md")
    terminal.expect("Trust this folder?")
    terminal.type("y")
    terminal.expect("buy milk")

    assert terminal.end() == 0
    assert (overlaid.work / "noted.txt").exists()


def test_a_folder_that_changed_since_it_was_trusted_asks_again_and_shows_the_difference(project: Any) -> None:
    project("config", "trust")
    settings = "profile: foundation/offline\nshow_thinking: true\n# joined\u200dhere\n"
    (project.work / ".amplifier/settings.yaml").write_text(settings)

    unasked = project("run", "--profile", "offline", "read notes.md")
    assert "has changed since you trusted it, so its settings have no effect" in unasked.stderr
    assert json.loads(project("config", "get", "profile", "--json").stdout)["from"] != "project"

    terminal = Terminal(project, "run", "read notes.md")
    terminal.expect("-show_thinking: false")
    terminal.expect("+show_thinking: true")
    terminal.expect("joined\\u200dhere")
    terminal.expect("Trust this folder?")
    terminal.type("y")
    terminal.expect("buy milk")
    assert terminal.end() == 0
    assert json.loads(project("config", "get", "profile", "--json").stdout)["from"] == "project"


def test_code_that_was_put_below_a_trusted_folder_makes_it_untrusted_and_logs_do_not(project: Any) -> None:
    project("config", "trust")
    logs = project.work / ".amplifier/transcripts"
    logs.mkdir()
    (logs / "one.md").write_text("said\n")
    assert json.loads(project("config", "get", "profile", "--json").stdout)["from"] == "project"

    module = project.work / ".amplifier/modules/evil"
    module.mkdir(parents=True)
    (module / "__init__.py").write_text("raise SystemExit\n")
    assert json.loads(project("config", "get", "profile", "--json").stdout)["from"] != "project"


def test_a_folder_that_was_trusted_before_content_counted_asks_once(project: Any) -> None:
    trust = project.home / "config/trust.json"
    trust.parent.mkdir(exist_ok=True, parents=True)
    trust.write_text(json.dumps({"format_version": 1, "directories": [str(project.work.resolve())]}))

    assert json.loads(project("config", "get", "profile", "--json").stdout)["from"] != "project"
    project("config", "trust")
    assert json.loads(project("config", "get", "profile", "--json").stdout)["from"] == "project"


def test_a_setting_that_its_owner_changes_by_command_keeps_the_trust(project: Any) -> None:
    project("config", "trust")
    project("config", "set", "--project", "show_thinking", "true")

    assert json.loads(project("config", "get", "show_thinking", "--json").stdout)["from"] == "project"
