"""Every mistake of a first hour is answered with what is wrong, where, and what to type next."""

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import warm_python
from anthropic_server import MESSAGES, AnthropicServer, failure
from first_hour import MISTAKES, Mistake
from plans import call, plan_file

from amplifier_cli.exit_codes import MEANINGS, ExitCode

Say = Callable[..., Any]
PAGE = Path(__file__).parents[2] / "docs" / "troubleshooting.md"


def missing(told: str, parts: tuple[str, ...], **places: Path) -> list[str]:
    """Return the parts that are not told, in their order."""
    position, lost = 0, []
    for part in parts:
        for name, path in places.items():
            part = part.replace(name, str(path))
        found = told.find(part, position)
        lost += [part] if found < 0 else []
        position = max(position, found)
    return lost


def row(mistake: Mistake) -> str:
    """Return the row of a mistake in the page: what it is, what is said, and what to do."""
    cells = (mistake.title, mistake.says[0], mistake.says[-1])
    return "| {} | `{}` | `{}` |".format(*(cell.replace("HOME/", "").replace("WORK/", "") for cell in cells))


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_is_answered_with_what_where_and_what_to_type(
    say: Say, amplifier: Any, monkeypatch: pytest.MonkeyPatch, mistake: Mistake
) -> None:
    mistake.make(amplifier.home, amplifier.work)
    monkeypatch.setenv("AMPLIFIERD_OFFLINE", "1" if mistake.offline else "0")

    said = say(*mistake.arguments)

    assert missing(said.err, mistake.says, HOME=amplifier.home, WORK=amplifier.work) == [], said.err
    assert said.code == mistake.code, said.err
    assert "Traceback" not in said.err


def test_the_page_of_troubles_lists_every_mistake() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert [mistake.title for mistake in MISTAKES if row(mistake) not in page] == []
    assert [code for code in ExitCode if f"| {code.value} | {MEANINGS[code]} |" not in page] == []


def test_a_wrong_key_is_told_with_how_to_store_another(say: Say, amplifier: Any) -> None:
    with AnthropicServer() as server:
        server.script(MESSAGES, failure(401, "invalid x-api-key"))
        config = {"api_key": "sk-wrong", "base_url": server.url, "max_retries": 0}
        plan = {"session": {"orchestrator": "loop-basic", "context": "context-simple"}}
        plan["providers"] = [{"module": "provider-anthropic", "config": config}]  # type: ignore[assignment]
        (amplifier.work / "plan.json").write_text(json.dumps(plan))

        said = say("run", "--plan", "plan.json", "Hi")

    assert said.code == 1
    parts = (
        "error: ",
        "anthropic refused the request (401): invalid x-api-key",
        "fix: store another key: amplifier provider add anthropic",
    )
    assert missing(said.err, parts) == [], said.err
    assert "sk-wrong" not in said.err


def test_a_directory_that_is_gone_is_named(amplifier: Any) -> None:
    gone = amplifier.work / "gone"
    gone.mkdir()
    command = subprocess.list2cmdline(amplifier.command(["run", "Hi"]))

    run = subprocess.run(
        ["sh", "-c", f"rmdir ../gone; exec {command}"],
        cwd=gone,
        env=amplifier.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, run.stderr) == (
        1,
        "error: the current directory no longer exists\n  fix: change to one that does: cd\n",
    )


def main_in(amplifier: Any, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program that calls the command; its last call decides the exit code."""
    return warm_python.run(
        [sys.executable, "-c", f"import os, resource, sys\nfrom amplifier_cli.main import main\n{program}", *arguments],
        cwd=amplifier.work,
        env=amplifier.environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        keeper=amplifier.keeper,
    )


@pytest.mark.parametrize(
    ("most", "says"), [(0, "No usable temporary directory"), (2_000, "File too large")], ids=["nothing", "little"]
)
def test_no_space_is_told_with_what_to_do(amplifier: Any, most: int, says: str) -> None:
    limit = f"resource.setrlimit(resource.RLIMIT_FSIZE, ({most}, {most}))"

    run = main_in(amplifier, f"{limit}\nsys.exit(main(['run', 'Hi']))")

    assert run.returncode == 1
    assert missing(run.stderr, ("error: ", says, "fix: ")) == [], run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_home_that_cannot_be_written_is_named_with_what_to_do(amplifier: Any) -> None:
    program = """
main(["run", "Hi"])  # everything is imported now, and need not be readable
main(["config", "get", "nothing"])
os.setgid(65534)
os.setuid(65534)
sys.exit(main(["--home", sys.argv[1], "run", "Hi"]))
"""
    closed = amplifier.work / "closed"
    amplifier.work.parent.chmod(0o755)
    closed.mkdir(mode=0o755)

    run = main_in(amplifier, program, str(closed / "home"))

    assert run.returncode != 0
    parts = ("error: ", "Permission denied", "fix: make it readable and writable for you", "--home DIR")
    assert missing(run.stderr, parts) == [], run.stderr
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_closed_streams_are_no_obstacle(amplifier: Any, closed: str) -> None:
    command = shlex.join(amplifier.command(["run", "--profile", "offline", "read notes.md"]))

    run = subprocess.run(
        ["sh", "-c", f"{command} {closed}"],
        cwd=amplifier.work,
        env=amplifier.environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, run.stderr) == (0, "")
    assert ("buy milk" in run.stdout) == (closed != ">&-")


def test_an_empty_home_option_is_as_good_as_none(amplifier: Any) -> None:
    amplifier("--home", "", "run", "--profile", "offline", "Hi")

    assert [file.name for file in amplifier.work.iterdir()] == ["notes.md"]


def test_a_directory_where_a_settings_file_belongs_is_named(say: Say, amplifier: Any) -> None:
    (amplifier.home / "config" / "settings.yaml").mkdir(parents=True)

    said = say("config", "set", "model", "small")

    assert said.code == 1
    assert missing(said.err, ("error: ", "settings.yaml: Is a directory", "fix: move what is there")) == [], said.err


def test_a_log_that_cannot_be_written_keeps_nobody_from_reading(say: Say, amplifier: Any) -> None:
    (amplifier.home / "state" / "logs" / "amplifierd" / "command.log").mkdir(parents=True)
    (amplifier.home / "state" / "index.lock").mkdir()
    (amplifier.home / "state" / "sessions").mkdir()

    said = say("session", "list", "--json")

    assert (said.code, said.out, said.err) == (0, "[]\n", "")


def test_a_session_in_use_is_told_with_its_holder_and_goes_on_when_that_is_gone(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [{**call("bash", command="sleep 60"), "when": {"regex": "^Go$"}}, "Later."])
    process = amplifier.start("run", "--plan", plan, "-o", "jsonl", "Go")
    next(line for line in process.stdout if json.loads(line)["event"] == "tool:intent")

    held = amplifier("run", "--resume", "last", "Hi")
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=30)
    again = amplifier("run", "--resume", "last", "-o", "json", "Go on")

    assert held.returncode == 3
    assert missing(held.stderr, ("error: ", str(process.pid), "fix: ")) == [], held.stderr
    assert json.loads(again.stdout)["status"] == "completed"


def test_a_deleted_session_is_not_found(say: Say) -> None:
    session = json.loads(say("run", "--profile", "offline", "-o", "json", "List files").out)["session_id"]
    assert say("session", "delete", session, "--force").code == 0

    said = say("run", "--resume", session, "Hi")

    assert (said.code, f"there is no session '{session}'" in said.err) == (2, True)
    assert "fix: amplifier session list shows them" in said.err
