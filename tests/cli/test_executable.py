"""The real executable, in a process of its own: what works ends with 0, what does not says what to type."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from plans import plan_file
from terminal import CTRL_C, Terminal


@pytest.mark.parametrize(
    ("works", "fails", "words"),
    [
        (["collection", "list"], ["collection", "show", "zebra"], "amplifier collection list"),
        (["bundle", "list"], ["bundle", "show", "zebra"], "amplifier bundle list"),
        (["plan", "show", "offline"], ["plan", "show", "zebra"], "amplifier profile list"),
        (["module", "list"], ["module", "show", "zebra"], "amplifier module list"),
        (["agent", "list", "--profile", "coding"], ["agent", "show", "zebra"], "has none"),
        (["source", "show"], ["source", "fetch", "notes.md"], "./notes.md"),
        (["tool", "list", "--profile", "offline"], ["tool", "info", "zebra"], "there is no tool 'zebra'"),
        (["profile", "list"], ["profile", "show", "zebra"], "amplifier profile list"),
        (["session", "list"], ["session", "show", "zebra"], "amplifier session list"),
        (["provider", "list"], ["provider", "test", "zebra"], "amplifier provider list"),
        (["config", "list"], ["config", "get", "zebra"], "there is no setting 'zebra'"),
        (["doctor"], ["doctor", "zebra"], "amplifier doctor -h"),
        (["version"], ["version", "zebra"], "amplifier version -h"),
    ],
)
def test_a_command_answers_people_and_programs_and_says_what_is_wrong(
    amplifier: Any, works: list[str], fails: list[str], words: str
) -> None:
    said, told, failed = amplifier(*works), amplifier.executable(*works, "--json"), amplifier(*fails)

    assert (said.returncode, said.stderr, bool(said.stdout)) == (0, "", True)
    assert (told.returncode, told.stdout.count("\n")) == (0, 1)
    json.loads(told.stdout)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert "Traceback" not in failed.stderr
    assert words in failed.stderr


def test_a_call_by_hand_is_asked_about_at_the_terminal(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [], guarded=True)
    call = ("tool", "invoke", "bash", "command=touch made", "--plan", plan)

    refused = Terminal(amplifier, *call)
    refused.expect("[y]es, once")
    refused.type("n not now")
    assert (refused.end(), (amplifier.work / "made").exists()) == (1, False)
    assert "not now" in refused.read

    allowed = Terminal(amplifier, *call)
    allowed.expect("[y]es, once")
    allowed.type("y")
    assert (allowed.end(), (amplifier.work / "made").exists()) == (0, True)


def test_ctrl_c_twice_stops_a_call_by_hand(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [])
    begun = amplifier.work / "begun"
    os.mkfifo(begun)
    terminal = Terminal(amplifier, "tool", "invoke", "bash", "command=echo > begun; sleep 25", "--plan", plan)
    begun.read_text()  # returns when the command writes to it

    terminal.press(CTRL_C)
    terminal.expect("Ctrl-C again")
    terminal.press(CTRL_C)

    assert terminal.end() == 130


def test_removing_is_asked_about_at_the_terminal(amplifier: Any) -> None:
    folder = amplifier.work / "mine"
    folder.mkdir()
    (folder / "p.md").write_text(
        "---\nprofile: {name: p, version: 1.0.0, extends: foundation/offline, schema_version: 2}\n---\n"
    )
    assert amplifier("collection", "add", "mine", "./mine", "--no-compile").returncode == 0

    kept = Terminal(amplifier, "collection", "remove", "mine")
    kept.expect("Remove the collection mine")
    kept.type("n")
    assert kept.end() == 1
    gone = Terminal(amplifier, "collection", "remove", "mine")
    gone.expect("Remove the collection mine")
    gone.type("y")
    assert gone.end() == 0


@pytest.mark.parametrize("package", ["amplifier_cli", "amplifierd"])
def test_ctrl_c_while_it_is_imported_ends_it_without_a_traceback(package: str, tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")

    run = subprocess.run(
        [sys.executable, "-m", package, "version"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, run.stdout, run.stderr) == (-signal.SIGINT, "", "")
