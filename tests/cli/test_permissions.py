"""Permission levels at the terminal: chosen by a flag, a setting, a command or a key, and plans that are accepted."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from plans import call, plan_file
from terminal import CTRL_D, ENTER, Terminal

WRITE = call("write_file", file_path="made.txt", content="made")
SHIFT_TAB = "\x1b[Z"


@pytest.fixture(params=["here", "daemon"])
def anywhere(request: pytest.FixtureRequest, amplifier: Any) -> Any:
    """The command, with sessions in its own process and in a daemon."""
    return amplifier if request.param == "here" else replace(amplifier, home=request.getfixturevalue("served"))


def when(words: str, step: Any) -> dict[str, Any]:
    step = step if isinstance(step, dict) else {"text": step}
    return {**step, "when": {"contains": words, "role": "user"}}


def level_of(amplifier: Any) -> str | None:
    return json.loads(amplifier("session", "show", "last", "--json").stdout)["session"]["permission_level"]


def test_a_run_at_the_level_plan_writes_nothing_whatever_else_is_said(anywhere: Any) -> None:
    plan = plan_file(anywhere.work, [WRITE, "This is the plan."])

    run = anywhere("run", "--permissions", "plan", "--yes", "--plan", plan, "Make it")

    assert (run.returncode, run.stdout) == (0, "This is the plan.\n")
    assert not (anywhere.work / "made.txt").exists()
    assert level_of(anywhere) == "plan"


def test_a_run_goes_on_at_the_level_that_it_is_given(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [when("Plan", "The plan."), when("Make", WRITE), "Made."], guarded=True)
    amplifier("run", "--permissions", "plan", "--plan", plan, "Plan it")

    run = amplifier("run", "--resume", "last", "--permissions", "edits", "Make it")

    assert run.returncode == 0, run.stderr
    assert (amplifier.work / "made.txt").read_text() == "made"
    assert level_of(amplifier) == "edits"


def test_an_unknown_level_is_refused_with_those_that_there_are(amplifier: Any) -> None:
    run = amplifier("run", "--permissions", "everything", "Hi")

    assert run.returncode == 2
    assert all(level in run.stderr for level in ("plan", "ask", "edits", "auto"))


@pytest.mark.parametrize(
    ("own", "of_project", "counts"), [(None, "auto", None), ("auto", "plan", "plan"), ("edits", "auto", "edits")]
)
def test_the_settings_of_a_project_only_narrow(
    amplifier: Any, own: str | None, of_project: str, counts: str | None
) -> None:
    project = amplifier.work / "project"
    (project / ".amplifier").mkdir(parents=True)
    (project / ".amplifier/settings.yaml").write_text(f"permissions: {of_project}\n")
    if own:
        amplifier("config", "set", "permissions", own)
    amplifier("config", "trust", cwd=project)

    run = amplifier("run", "--plan", plan_file(amplifier.work, ["Hello."]), "Hi", cwd=project)

    assert run.returncode == 0, run.stderr
    assert level_of(amplifier) == counts


def test_a_plan_is_edited_and_then_carried_out(anywhere: Any) -> None:
    script = [when("edited by me", WRITE), when("Think", "Step one.")]
    terminal = chat(anywhere, [*script, "Done: {{last_user}}"], "--permissions", "plan")
    terminal.type("Think")
    terminal.expect("Enter accepts the plan, e edits it")
    terminal.type("e")
    terminal.expect("Step one.")
    terminal.type(" edited by me")
    terminal.expect("[y]es, once")
    terminal.type("y")
    terminal.expect("Done:")
    terminal.expect("ask")
    terminal.press(CTRL_D)

    assert terminal.end() == 0
    assert (anywhere.work / "made.txt").read_text() == "made"


def test_a_plan_is_sent_back_and_then_accepted(amplifier: Any) -> None:
    script = [when("Carry it out", WRITE), when("Shorter", "Short plan."), when("Think", "Long plan.")]
    terminal = chat(amplifier, [*script, "Done."], "--permissions", "plan")
    terminal.type("Think")
    terminal.expect("Long plan.")
    terminal.expect("Enter accepts the plan")
    terminal.type("Shorter")
    terminal.expect("Short plan.")
    terminal.expect("Enter accepts the plan")
    terminal.press(ENTER)
    terminal.expect("[y]es, once")
    terminal.type("y")
    terminal.expect("Done.")
    terminal.press(CTRL_D)

    assert terminal.end() == 0
    assert (amplifier.work / "made.txt").exists()


def test_shift_tab_and_a_command_choose_the_level_and_a_command_takes_back_an_always(anywhere: Any) -> None:
    again = call("write_file", file_path="made.txt", content="again")
    script = [when("One", WRITE), when("Two", again), "Done.", "Done."]
    terminal = chat(anywhere, script, guarded=True)
    terminal.type("One")
    terminal.expect("[y]es, once")
    terminal.type("a")
    terminal.expect("Done.")
    terminal.type("/permissions")
    terminal.expect("none is chosen")
    terminal.expect("1. always in this session: write_file: write files in ./")
    terminal.type("/permissions revoke 2")
    terminal.expect("there is no remembered answer '2'")
    terminal.type("/permissions revoke 1")
    terminal.expect("asked about again: write_file: write files in ./")
    terminal.press(SHIFT_TAB)
    terminal.expect("edits")
    terminal.press(SHIFT_TAB)
    terminal.expect("auto")
    terminal.press(SHIFT_TAB)
    terminal.expect("plan")
    terminal.type("/permissions aks")
    terminal.expect("did you mean ask")
    terminal.type("/permissions ask")
    terminal.expect("ask: the agent asks about")
    terminal.type("Two")
    terminal.expect("[y]es, once")
    terminal.type("n")
    terminal.expect("Done.")
    terminal.press(CTRL_D)

    assert terminal.end() == 0
    assert (anywhere.work / "made.txt").read_text() == "made"


def chat(amplifier: Any, script: list[Any], *arguments: str, guarded: bool = False) -> Terminal:
    plan: str | Path = plan_file(amplifier.work, script, guarded=guarded)
    terminal = Terminal(amplifier, "chat", "--plan", plan, *arguments)
    terminal.expect(">")
    return terminal


def test_modes_are_listed_entered_with_a_prompt_and_left(anywhere: Any) -> None:
    file = Path(plan_file(anywhere.work, [when("Look", WRITE), "Looked.", "Free."]))
    plan = json.loads(file.read_text())
    file.write_text(json.dumps({**plan, "hooks": [{"module": "hooks-mode"}]}))
    terminal = Terminal(anywhere, "chat", "--plan", str(file))
    terminal.expect(">")
    terminal.type("/modes")
    terminal.expect("careful")
    terminal.type("/mode explor")
    terminal.expect("there is no mode 'explor'")
    terminal.type("/mode explore Look around")
    terminal.expect("the mode explore is on")
    terminal.expect("Looked.")
    terminal.type("/mode off")
    terminal.expect("no mode is on")
    terminal.press(CTRL_D)

    assert terminal.end() == 0
    assert not (anywhere.work / "made.txt").exists()


def test_skills_are_listed_with_their_marks_and_what_is_wrong(anywhere: Any) -> None:
    library = anywhere.work.parent / "library"
    for folder, text in {
        "notes": "name: notes\ndescription: Drafts notes.\ncontext: fork\nshortcut: rn",
        "nothing": "name: nothing",
    }.items():
        (library / folder).mkdir(parents=True)
        (library / folder / "SKILL.md").write_text(f"---\n{text}\n---\nDo it.\n")
    file = Path(plan_file(anywhere.work, ["Hi."]))
    skills = {"module": "tool-skills", "config": {"skills": [{"source": str(library), "trusted": False}]}}
    file.write_text(json.dumps({**json.loads(file.read_text()), "tools": [skills]}))
    terminal = Terminal(anywhere, "chat", "--plan", str(file))
    terminal.expect(">")
    terminal.type("/skills")
    terminal.expect("Drafts notes. (shortcut rn, fork, not trusted)")
    terminal.expect("/skills --check shows 1 problem")
    terminal.type("/skills --check")
    terminal.expect("description must be a text")
    terminal.type("/skills --all")
    terminal.expect("/skills does not know '--all'")
    terminal.press(CTRL_D)

    assert terminal.end() == 0
