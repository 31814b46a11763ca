"""The example that goes from a profile to an answer: three phases, real tools, and nothing left behind."""

import re
from pathlib import Path

import pytest
from offline_example import run_offline

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/first_profile.py"


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_offline(SCRIPT, folder=tmp_path_factory.mktemp("first"))


def test_it_shows_the_three_phases_in_order(printed: str) -> None:
    headings = re.findall(r"^(\d)\. (.*)$", printed, re.MULTILINE)

    assert [number for number, _ in headings] == ["1", "2", "3", "4"]
    assert headings[0][1] == "The collection foundation (builtin:foundation) has 5 profiles"
    assert headings[1][1].startswith(
        "The profile foundation/offline, which extends foundation/foundation, is fresh: build"
    )
    assert headings[2][1] == "The mount plan has 0 errors and 0 warnings; its session:"


def test_it_shows_what_is_locked(printed: str) -> None:
    locked = re.findall(r"^   (\w+) +(\S+) +(installed|local) +\S+$", printed, re.MULTILINE)

    assert locked == [
        ("orchestrator", "loop-streaming", "installed"),
        ("context", "context-simple", "installed"),
        ("providers", "provider-mock", "installed"),
        ("tools", "tool-filesystem", "installed"),
        ("tools", "tool-search", "installed"),
        ("tools", "tool-todo", "installed"),
        ("hooks", "hooks-redaction", "installed"),
        ("contexts", "foundation", "local"),
    ]


def test_the_agent_uses_real_tools_on_real_files(printed: str) -> None:
    tools = re.findall(r"^   the agent uses (\w+) ", printed, re.MULTILINE)
    answer = printed.partition("The answer:\n\n")[2]

    assert tools == ["glob", "read_file", "grep"]
    assert "     1\t# Notes" in answer
    assert "notes.md:3:- buy milk" in answer
    assert "plan.txt:1:First the milk." in answer


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    printed = run_offline(SCRIPT, "read plan.txt", folder=tmp_path)

    assert "First the milk." in printed.partition("The answer:\n\n")[2]
    assert [*(tmp_path / "tmp").iterdir(), *(tmp_path / "home").iterdir()] == []
    assert printed.splitlines()[-1].startswith("The folder has been removed again.")
