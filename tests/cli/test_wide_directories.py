"""In `/`, in a home directory or above it, and in our own home: nobody works there unattended, a person is asked."""

import json
from pathlib import Path
from typing import Any

import pytest
from plans import call, plan_file
from terminal import CTRL_D, Terminal

WRITES = [call("write_file", file_path=f"{name}.txt", content=name) for name in ("one", "two")]


@pytest.fixture
def in_home(amplifier: Any) -> Any:
    """The command of a person whose home directory is where they work."""
    amplifier.variables["HOME"] = str(amplifier.work)
    return amplifier


def plan_that_writes(amplifier: Any) -> str:
    """Write a plan whose guard approves every write by itself."""
    file = Path(plan_file(amplifier.work.parent, [*WRITES, "Done."], guarded=True))
    plan = json.loads(file.read_text())
    plan["hooks"][0]["config"]["rules"] = [{"tool": "write_file", "pattern": "./*", "action": "auto_approve"}]
    file.write_text(json.dumps(plan))
    return str(file)


@pytest.mark.parametrize("directory", ["/", "a home directory", "above a home directory", "the home of Amplifier"])
@pytest.mark.parametrize("flags", [(), ("--yes",)], ids=["", "yes"])
def test_an_unattended_run_is_refused(amplifier: Any, directory: str, flags: tuple[str, ...]) -> None:
    places = {"/": Path("/"), "a home directory": amplifier.work, "above a home directory": amplifier.work.parent}
    place = places.get(directory, amplifier.home)
    place.mkdir(exist_ok=True)
    plan = plan_file(amplifier.work, ["Never said."])

    run = amplifier("run", "--plan", plan, *flags, "Hi", cwd=place, variables={"HOME": str(amplifier.work)})

    assert run.returncode == 2, run.stdout
    assert "no unattended session works in" in run.stderr
    assert "change to the directory of a project" in run.stderr


def test_an_ordinary_directory_below_a_home_directory_is_not_asked_about(in_home: Any) -> None:
    project = in_home.work / "project"
    project.mkdir()

    run = in_home("run", "--plan", plan_file(in_home.work, ["Hello."]), "Hi", cwd=project)

    assert (run.returncode, run.stdout) == (0, "Hello.\n")


def test_a_person_is_asked_and_then_about_each_write_whatever_rules_and_flags_say(in_home: Any) -> None:
    terminal = Terminal(in_home, "run", "--plan", plan_that_writes(in_home), "--yes", "Write")
    terminal.expect("is not the directory of a project: it is a home directory")
    terminal.expect("Work here? [y/N]")
    terminal.type("y")
    for name, answer in (("one", "y"), ("two", "n")):
        terminal.expect(f"{name}.txt")
        terminal.expect("[y]es, once, [n]o, or: n REASON >")
        terminal.type(answer)
    terminal.expect("Done.")

    assert terminal.end() == 0
    assert [(in_home.work / f"{name}.txt").exists() for name in ("one", "two")] == [True, False]


def test_a_person_who_says_no_starts_nothing(in_home: Any) -> None:
    terminal = Terminal(in_home, "chat", "--plan", plan_that_writes(in_home))
    terminal.expect("Work here? [y/N]")
    terminal.type("n")

    assert terminal.end() == 1
    assert "no session" in in_home("session", "list").stdout.lower() or "[]" in in_home("session", "list").stdout


def test_a_chat_goes_on_there_after_a_yes_and_asks_again_when_it_is_continued(in_home: Any) -> None:
    terminal = Terminal(in_home, "chat", "--plan", plan_file(in_home.work.parent, ["Hello.", "Again."]))
    terminal.expect("Work here?")
    terminal.type("y")
    terminal.expect(">")
    terminal.type("Hi")
    terminal.expect("Hello.")
    terminal.press(CTRL_D)
    assert terminal.end() == 0

    unattended = in_home("run", "--resume", "last", "Once more")
    assert unattended.returncode == 2, unattended.stdout
    again = Terminal(in_home, "continue")
    again.expect("Work here?")
    again.type("y")
    again.expect(">")
    again.press(CTRL_D)
    assert again.end() == 0
