"""The command where a daemon serves the home: it runs there, and says what it says without one."""

import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest
from daemon_home import served_home
from plans import call, plan_file
from terminal import CTRL_C, Terminal

from amplifierd.paths import Paths
from amplifierd.server.run_file import find_running

WAITING = call("bash", command="touch begun; while [ ! -e go ]; do sleep 0.05; done")


@pytest.fixture
def amplifier(amplifier: Any, served: Path) -> Any:
    amplifier.home = served
    return amplifier


def steady(text: str) -> str:
    """Return what was printed without what differs from run to run."""
    return re.sub(r"session_[0-9a-f]{32}|\d+\.\d+ s|\b[0-9a-f]{8}\b", "…", text)


def both(amplifier: Any, *arguments: str) -> tuple[Any, Any]:
    return amplifier("run", "--daemon", *arguments), amplifier("run", "--no-daemon", *arguments)


def runs_here(amplifier: Any, session_id: str) -> bool:
    """Say whether a session was made by a process of the command, by who it belongs to."""
    shown = json.loads(amplifier("session", "show", session_id, "--json").stdout)
    return shown["session"]["owner"] is None


def test_a_turn_prints_the_same_in_the_daemon_as_here(amplifier: Any) -> None:
    script = [call("read_file", file_path="notes.md"), "There is **milk** to buy.\n\nThat is all."]
    plan = plan_file(amplifier.work, script)

    there, here = both(amplifier, "--plan", plan, "What is in my notes?")

    assert there.returncode == here.returncode == 0, there.stderr
    assert (there.stdout, steady(there.stderr)) == (here.stdout, steady(here.stderr))
    assert "milk" in there.stdout


def test_json_and_every_event_are_the_same_in_the_daemon_as_here(amplifier: Any) -> None:
    script = [call("read_file", file_path="notes.md"), "Read."]
    plan = plan_file(amplifier.work, script)

    there, here = (json.loads(run.stdout) for run in both(amplifier, "--plan", plan, "-o", "json", "Read it"))
    lines = [
        [json.loads(line) for line in run.stdout.splitlines()]
        for run in both(amplifier, "--plan", plan, "-o", "jsonl", "Read it")
    ]

    differing = ("session_id", "usage")
    assert {**there, **dict.fromkeys(differing)} == {**here, **dict.fromkeys(differing)}
    assert there["usage"]["tokens"] == here["usage"]["tokens"]
    assert [event["event"] for event in lines[0]] == [event["event"] for event in lines[1]]
    assert [set(event) for event in lines[0]] == [set(event) for event in lines[1]]


def test_without_a_word_a_running_daemon_is_used(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Hello."])

    by_itself = json.loads(amplifier("run", "--plan", plan, "-o", "json", "Hi").stdout)
    local = json.loads(amplifier("run", "--no-daemon", "--plan", plan, "-o", "json", "Hi").stdout)

    assert runs_here(amplifier, local["session_id"])
    assert not runs_here(amplifier, by_itself["session_id"])


def test_a_session_goes_on_in_the_daemon_whoever_began_it(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["{{last_user}}"], provider={"on_exhausted": "repeat_last"})
    began = json.loads(amplifier("run", "--no-daemon", "--plan", plan, "-o", "json", "one").stdout)

    again = json.loads(amplifier("run", "--daemon", "--resume", began["session_id"], "-o", "json", "two").stdout)
    other = amplifier("run", "--daemon", "--resume", began["session_id"], "-m", "other", "-o", "json", "three")

    assert (again["session_id"], again["turn"], again["status"]) == (began["session_id"], 2, "completed")
    assert (json.loads(other.stdout)["model"], json.loads(other.stdout)["turn"]) == ("other", 3)
    assert "uses other from now on" in other.stderr
    wrong = amplifier("run", "--daemon", "--resume", began["session_id"], "-p", "nowhere", "four")
    assert (wrong.returncode, "fix: this profile has others: -p mock" in wrong.stderr) == (2, True)


def test_keys_that_nothing_reads_are_told_in_the_same_words(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Hello."], provider={"on_exhaust": "canned"})

    there, here = both(amplifier, "--plan", plan, "Hi")

    assert "on_exhaust is not a key of provider-mock" in there.stderr
    assert (there.returncode, there.stdout, steady(there.stderr)) == (0, here.stdout, steady(here.stderr))
    again = amplifier("run", "--daemon", "--resume", "last", "Hi")
    assert "on_exhaust is not a key of provider-mock" in again.stderr


def test_a_turn_that_a_crash_interrupted_is_told_in_the_same_words(amplifier: Any) -> None:
    script = [{**call("bash", command="sleep 60"), "when": {"regex": "^Go$"}}, "Later."]
    told = []
    for place in ("--daemon", "--no-daemon"):
        process = amplifier.start(
            "run", "--no-daemon", "--plan", plan_file(amplifier.work, script), "-o", "jsonl", "Go"
        )
        session_id = next(
            event["session_id"] for event in map(json.loads, process.stdout) if event["event"] == "tool:intent"
        )
        process.kill()
        process.communicate(timeout=30)
        again = amplifier("run", place, "--resume", session_id, "Go on")
        told.append((again.returncode, again.stdout, steady(again.stderr)))

    assert "has been repaired" in told[0][2]
    assert told[0] == told[1]


@pytest.mark.parametrize("answer", [[], ["--yes"]])
def test_questions_are_answered_here_as_without_a_daemon(amplifier: Any, answer: list[str]) -> None:
    script = [call("bash", command="touch made.txt"), "Tried."]
    plan = plan_file(amplifier.work, script, guarded=True)

    there = amplifier("run", "--daemon", *answer, "--plan", plan, "Do it")
    was_made = (amplifier.work / "made.txt").exists()
    (amplifier.work / "made.txt").unlink(missing_ok=True)
    here = amplifier("run", "--no-daemon", *answer, "--plan", plan, "Do it")

    assert (there.stdout, steady(there.stderr)) == (here.stdout, steady(here.stderr))
    assert was_made == (amplifier.work / "made.txt").exists() == bool(answer)


def test_a_module_that_is_broken_is_told_in_the_same_words(amplifier: Any) -> None:
    plan = {"session": {"orchestrator": {"module": "loop-nowhere"}, "context": {"module": "context-simple"}}}
    file = amplifier.work / "broken.json"
    file.write_text(json.dumps(plan))

    there, here = both(amplifier, "--plan", str(file), "Hi")

    assert there.returncode == here.returncode == 1
    assert steady(there.stderr) == steady(here.stderr)


def test_ctrl_c_stops_the_turn_in_the_daemon(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("bash", command="echo begun > begun; sleep 60"), "Slept."])
    process = amplifier.start("run", "--daemon", "--plan", plan, "-o", "jsonl", "Sleep")
    for line in process.stdout:
        if json.loads(line)["event"] == "tool:pre":
            break
    process.send_signal(signal.SIGINT)
    assert "Ctrl-C again" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    rest = [json.loads(line) for line in process.stdout]

    assert process.wait(timeout=60) == 130
    assert rest[-1]["data"]["status"] == "cancelled"


def test_the_daemon_is_looked_at_by_the_command(amplifier: Any, served: Path) -> None:
    running = find_running(Paths.from_environment(served, {}))
    status = amplifier("daemon", "status", "--json")
    again = amplifier("daemon", "start")
    logs = amplifier("daemon", "logs", "-n", "100000")

    assert (status.returncode, json.loads(status.stdout)["url"]) == (0, running and running.url)
    assert "another amplifierd" in again.stderr
    assert "ready after" in logs.stdout


def test_a_daemon_is_started_and_stopped_by_the_command(tmp_path: Path, amplifier: Any) -> None:
    amplifier.home = tmp_path / "home"
    try:
        started = amplifier("daemon", "start", "--port", "0")
        assert started.returncode == 0, started.stderr
        assert amplifier("daemon", "status").returncode == 0
    finally:
        stopped = amplifier("daemon", "stop")
    assert stopped.stdout.startswith("stopped ")
    assert amplifier("daemon", "status").returncode == 1


def test_a_daemon_that_is_asked_for_and_not_there_is_missed(tmp_path: Path, amplifier: Any) -> None:
    amplifier.home = tmp_path / "elsewhere"

    run = amplifier("run", "--daemon", "Hi")

    assert run.returncode == 2
    assert "fix: start one: amplifier daemon start" in run.stderr


def test_a_daemon_that_is_killed_in_the_middle_says_what_to_type_next(tmp_path: Path, amplifier: Any) -> None:
    amplifier.home = tmp_path / "home"
    plan = plan_file(amplifier.work, [WAITING, "Slept."])
    with served_home(amplifier.home) as daemon:
        process = amplifier.start("run", "--plan", plan, "-o", "jsonl", "Sleep")
        session_id = ""
        for line in process.stdout:
            event = json.loads(line)
            session_id = event["session_id"]
            if event["event"] == "tool:pre":
                break
        os.kill(daemon.process.pid, signal.SIGKILL)
        _, err = process.communicate(timeout=60)

    assert process.wait() == 1
    typed = re.search(r"amplifier run --resume (\w+)", err)
    assert typed is not None, err
    assert session_id.removeprefix("session_").startswith(typed[1])
    (amplifier.work / "go").touch()
    again = amplifier("run", "--resume", typed[1], "Go on")
    assert again.returncode == 0, again.stderr


def begun(amplifier: Any, script: list[Any]) -> tuple[Any, str]:
    """Start a turn that waits for a file in its tool; return the process of the command, and the session."""
    process = amplifier.start("run", "--daemon", "--plan", plan_file(amplifier.work, script), "-o", "jsonl", "Begin")
    for line in process.stdout:
        if json.loads(line)["event"] == "tool:pre":
            return process, json.loads(line)["session_id"]
    raise AssertionError(process.communicate(timeout=60)[1])


def test_whoever_joins_a_session_sees_it_steers_it_and_leaves_it_running(amplifier: Any) -> None:
    process, session_id = begun(amplifier, [WAITING, "Heard: {{last_user}}"])

    terminal = Terminal(amplifier, "session", "attach", session_id)
    terminal.expect("works")
    terminal.type("be quick")
    terminal.expect("told the agent: be quick")
    terminal.press(CTRL_C)
    assert terminal.end() == 0
    watching = amplifier.start("session", "attach", session_id)
    assert "its answer follows" in watching.stderr.readline()
    (amplifier.work / "go").touch()

    done = json.loads(process.communicate(timeout=60)[0].splitlines()[-1])["data"]
    assert (done["status"], "be quick" in done["response"]) == ("completed", True)
    assert watching.communicate(timeout=60)[0] == f"{done['response']}\n"


def test_a_turn_is_stopped_by_whoever_joined_it(amplifier: Any) -> None:
    process, session_id = begun(amplifier, [WAITING, "Never said."])

    terminal = Terminal(amplifier, "session", "attach", session_id)
    terminal.expect("works")
    terminal.type("/cancel")
    terminal.expect("then the turn ends; Esc again stops it")
    (amplifier.work / "go").touch()
    terminal.expect("cancelled")
    terminal.type("/quit")

    assert terminal.end() == 0
    assert json.loads(process.communicate(timeout=60)[0].splitlines()[-1])["data"]["status"] == "cancelled"


def test_who_joined_is_told_how_the_turn_ends_and_not_that_a_prompt_behind_it_never_began(
    tmp_path: Path, amplifier: Any
) -> None:
    amplifier.home = tmp_path / "home"
    with served_home(amplifier.home) as daemon:
        _, session_id = begun(amplifier, [WAITING, "Never said."])
        token = Paths.from_environment(amplifier.home, {}).token_file.read_text().strip()
        accepted = httpx2.post(
            f"{daemon.url}/api/v1/sessions/{session_id}/execute/stream",
            json={"prompt": "For later", "queue": True},
            headers={"Authorization": f"Bearer {token}"},
        )
        assert accepted.json()["status"] == "queued"
        terminal = Terminal(amplifier, "session", "attach", session_id)
        terminal.expect("works")
        watching = amplifier.start("session", "attach", session_id)
        assert "its answer follows" in watching.stderr.readline()
        os.kill(daemon.process.pid, signal.SIGTERM)
        (amplifier.work / "go").touch()

        assert "failed" not in terminal.expect("cancelled")
        assert watching.communicate(timeout=60) == ("", "")
        assert watching.returncode == 1


def test_questions_are_asked_where_one_has_joined(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Ready.", call("bash", command="touch made.txt"), "Made."], guarded=True)
    ready = json.loads(amplifier("run", "--daemon", "--plan", plan, "-o", "json", "Are you?").stdout)

    terminal = Terminal(amplifier, "session", "attach", ready["session_id"])
    terminal.expect("is idle")
    terminal.type("Make it")
    terminal.expect("[y]es, once")
    terminal.type("y")
    terminal.expect("Made.")
    terminal.type("/quit")

    assert terminal.end() == 0
    assert (amplifier.work / "made.txt").exists()


def test_in_a_pipe_nothing_is_waited_for_where_nothing_runs(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Done."])
    done = json.loads(amplifier("run", "--daemon", "--plan", plan, "-o", "json", "Hi").stdout)

    joined = amplifier("session", "attach", done["session_id"])

    assert (joined.returncode, joined.stdout) == (0, "")
    assert "no turn is running in session" in joined.stderr


def test_a_session_that_the_daemon_has_loaded_is_changed_with_the_same_words_as_any(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("write_file", file_path="made.txt", content="made"), "Done."])
    said = []
    for place in ("--daemon", "--no-daemon"):
        begun = amplifier("run", place, "--yes", "--plan", plan, "-o", "json", "Write it")
        session_id = json.loads(begun.stdout)["session_id"]
        changes = (("rename", session_id, "Mine"), ("undo", session_id, "--force"), ("delete", session_id, "--force"))
        done = [amplifier("session", *change) for change in changes]
        assert [one.returncode for one in done] == [0, 0, 0], [one.stderr for one in done]
        said.append([steady(one.stdout + one.stderr) for one in done])

    assert said[0] == said[1]
    assert not (amplifier.work / "made.txt").exists()


@pytest.mark.parametrize("options", [("--uds", "daemon.sock"), ("--port", "0", "--tls", "auto")], ids=["socket", "tls"])
def test_a_daemon_is_found_where_it_listens_and_keeps_what_it_has_loaded(
    tmp_path: Path, amplifier: Any, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    amplifier.home = tmp_path / "home"
    plan = plan_file(amplifier.work, ["Hello."])
    with served_home(amplifier.home, *options):
        there = amplifier("run", "--daemon", "--plan", plan, "Hi")
        here = amplifier("run", "--no-daemon", "--resume", "last", "Hi")

    assert (there.returncode, there.stdout) == (0, "Hello.\n"), there.stderr
    assert here.returncode == 3
    assert "amplifier session attach" in here.stderr
