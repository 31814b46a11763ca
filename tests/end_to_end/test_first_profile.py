"""The example that goes from a profile to an answer: three phases, real tools, and nothing left behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples/first_profile.py"

# Runs a script and ends it, with a message, when it looks up a name or connects to anything.
OFFLINE = """
import os, runpy, sys

def refuse(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        os.write(2, f"the script left the machine: {event} {args}".encode())
        os._exit(3)

sys.addaudithook(refuse)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def _run(folder: Path, *arguments: str) -> str:
    """Run the example without any key, with an empty home directory and an empty place for temporary files."""
    (folder / "home").mkdir()
    (folder / "tmp").mkdir()
    command = [sys.executable, "-c", OFFLINE, str(SCRIPT), *arguments]
    environment = {
        "PYTHONIOENCODING": "utf-8",
        "PATH": os.environ["PATH"],
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
    }
    run = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, encoding="utf-8", check=False
    )
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _run(tmp_path_factory.mktemp("first"))


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
        ("hooks", "hooks-logging", "installed"),
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
    printed = _run(tmp_path, "read plan.txt")

    assert "First the milk." in printed.partition("The answer:\n\n")[2]
    assert [*(tmp_path / "tmp").iterdir(), *(tmp_path / "home").iterdir()] == []
    assert printed.splitlines()[-1].startswith("The folder has been removed again.")
