"""What `make run` shows: the phases of a profile, an answer that used real tools, and what to type next."""

import re
import shlex
import sys
from pathlib import Path

import pexpect
import pytest
import warm_python
from offline_example import offline_environment, run_offline

from amplifier_cli.command_group import COMMANDS

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/first_run.py"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_offline(SCRIPT, folder=tmp_path_factory.mktemp("first"))


def test_it_shows_the_phases_in_a_line_each(printed: str) -> None:
    phases = dict(line.split(maxsplit=1) for line in printed.partition("\n\n")[0].splitlines())

    assert list(phases) == ["collection", "profile", "lock", "plan", "run"]
    assert phases["profile"] == "foundation/offline extends foundation/foundation"
    assert re.search(r"build [0-9a-f]{12}$", phases["lock"])
    assert phases["plan"].endswith(": 0 errors")


def test_the_command_answers_with_what_real_tools_found(printed: str) -> None:
    answer = printed.partition("amplifier run --profile foundation/offline ")[2]

    assert "     1\t# Notes" in answer
    assert "notes.md:3:- buy milk" in answer
    assert "plan.txt:1:First the milk." in answer


def test_it_ends_with_three_commands_that_exist(printed: str) -> None:
    listed = printed.partition("What to type next:\n")[2].splitlines()
    commands = [re.split(r"  +", line.strip())[0] for line in listed]

    assert len(commands) == 3
    for command in commands:
        _, *words = shlex.split(command)
        assert words[0] in COMMANDS
        run = warm_python.run([sys.executable, "-m", "amplifier_cli", *words, "--help"], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr


def test_nothing_is_left_behind_and_the_sample_is_untouched(tmp_path: Path) -> None:
    before = {file.name: file.read_bytes() for file in (ROOT / "examples/notes").iterdir()}

    printed = run_offline(SCRIPT, "read plan.txt", folder=tmp_path)

    assert "First the milk." in printed
    assert [*(tmp_path / "tmp").iterdir(), *(tmp_path / "home").iterdir()] == []
    assert {file.name: file.read_bytes() for file in (ROOT / "examples/notes").iterdir()} == before


def test_a_terminal_shows_each_tool_at_work(tmp_path: Path) -> None:
    shown = pexpect.run(
        shlex.join([sys.executable, str(SCRIPT)]),
        cwd=str(tmp_path),
        env=offline_environment(tmp_path),
        encoding="utf-8",
        timeout=60,
    )

    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", shown)
    places = [plain.index(line) for line in ("● glob", "● read_file notes.md", "● grep", "What to type next:")]
    assert places == sorted(places)
    assert "3 tool calls" in plain
