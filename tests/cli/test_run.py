"""`amplifier run`: prompts from everywhere, answers in three forms, choices, questions and failures."""

import asyncio
import base64
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from plans import call, plan_file

import amplifierd

Say = Callable[..., Any]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def answer(said: Any) -> dict[str, Any]:
    assert said.code == 0, said.err
    found: dict[str, Any] = json.loads(said.out)
    return found


def test_a_pipe_gets_the_answer_and_nothing_else(amplifier: Any) -> None:
    run = amplifier.executable("run", "List files, then read notes.md")

    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("glob:\n")
    assert "buy milk" in run.stdout
    assert run.stderr.startswith("note: no model key found")


def test_json_tells_what_the_turn_used_and_jsonl_tells_every_event(say: Say, amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Hello."])

    whole = answer(say("run", "--plan", plan, "-o", "json", "Hi"))
    lines = [json.loads(line) for line in say("run", "--plan", plan, "-o", "jsonl", "Hi").out.splitlines()]

    assert (whole["status"], whole["response"], whole["turn"]) == ("completed", "Hello.", 1)
    assert whole["usage"]["tokens"]["total"] > 0
    assert [lines[0]["event"], lines[-1]["event"]] == ["user_message:saved", "execution:done"]


def test_words_a_pipe_files_and_images_make_one_prompt(amplifier: Any, say: Say) -> None:
    (amplifier.work / "dot.png").write_bytes(PIXEL)
    plan = plan_file(amplifier.work, ["{{last_user}}"])
    arguments = ["run", "--plan", plan, "-o", "json", "What", "is this?", "-f", "notes.md", "-f", "dot.png"]

    run = amplifier(*arguments, stdin="from a pipe\n")

    response = json.loads(run.stdout)
    assert (
        response["response"] == 'What is this?\n\nfrom a pipe\n\n<file path="notes.md">\n# Notes\n\n- buy milk\n</file>'
    )
    messages = json.loads(say("session", "show", response["session_id"], "--json").out)["messages"]
    assert messages[1]["content"][0]["type"] == "image"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["there is no prompt", 'amplifier run "']),
        (["Hi", "-f", "nothing.txt"], ["nothing.txt cannot be read"]),
        (["Hi", "--profile", "ofline"], ["there is no profile 'ofline'", "did you mean offline?"]),
        (["Hi", "--profile", "base", "-p", "openia"], ["there is no provider 'openia'", "did you mean openai?"]),
        (["Hi", "--plan", "nothing.json"], ["nothing.json cannot be read"]),
        (["Hi", "--profile", "base", "--plan", "x.json"], ["use one of them"]),
        (["Hi", "--resume", "12345678"], ["there is no session '12345678'", "amplifier session list"]),
        (["Hi", "--resume", "last"], ["there is no session"]),
        (["Hi", "--name", "n" * 201], ["at most 200 characters, and this one has 201"]),
    ],
)
def test_what_cannot_be_run_is_told_with_what_to_type(say: Say, arguments: list[str], words: list[str]) -> None:
    said = say("run", *arguments)

    assert said.code == 2
    assert [word for word in [*words, "fix: "] if word not in said.err] == []


def test_a_name_that_is_too_long_is_told_before_a_home_is_made(say: Say, amplifier: Any) -> None:
    said = say("run", "Hi", "--name", "n" * 201)

    assert said.code == 2
    assert not amplifier.home.exists()


def test_flags_choose_the_model_the_effort_and_how_long_it_may_work(say: Say) -> None:
    chosen = ["--profile", "offline", "-p", "mock", "-m", "other", "--effort", "high", "--max-iterations", "3"]

    found = answer(say("run", *chosen, "--max-cost", "2", "-o", "json", "List files"))

    assert found["model"] == "other"
    session = json.loads(say("session", "show", found["session_id"], "--json").out)
    loop = session["plan"]["session"]["orchestrator"]["config"]
    assert (loop["max_iterations"], loop["reasoning_effort"], loop["default_provider"]) == (3, "high", "mock")
    assert session["session"]["limits"] == {"cost_usd": 2.0}


def test_a_session_goes_on_and_a_switch_of_its_profile_is_told(say: Say) -> None:
    first = answer(say("run", "--profile", "offline", "-o", "json", "List files"))
    short = first["session_id"].removeprefix("session_")[:8]

    again = answer(say("run", "--resume", short, "-o", "json", "Read notes.md"))
    fixed = say("run", "--resume", "last", "--bundle", "other", "Hi")
    asked = say("run", "--resume", "last", "-m", "other", "-o", "json", "List files")
    switched = say("run", "--resume", "last", "--profile", "base", "-o", "json", "Hi")

    assert (again["session_id"], again["turn"]) == (first["session_id"], 2)
    assert (fixed.code, "--bundle cannot be changed" in fixed.err) == (2, True)
    assert ("uses other from now on" in asked.err, answer(asked)["model"]) == (True, "other")
    assert "ran foundation/offline and continues with foundation/base" in switched.err
    assert answer(say("run", "--resume", "last", "--profile", "offline", "-o", "json", "List files"))["turn"] == 4


def test_a_failed_turn_says_why_and_exits_with_1(say: Say, amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [{"error": {"type": "AuthenticationError", "message": "no such key"}}])

    said = say("run", "--plan", plan, "Hi")

    assert (said.code, said.out) == (1, "")
    assert "error: " in said.err
    assert "no such key" in said.err


def test_a_broken_tool_is_named_in_the_json_and_strict_refuses_it(say: Say, amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Hello."], broken="tool-days")

    found = answer(say("run", "--plan", plan, "-o", "json", "Hi"))
    refused = say("run", "--plan", plan, "--strict", "-o", "json", "Hi")
    whole = say("run", "--plan", plan_file(amplifier.work, ["Hello."]), "--strict", "-o", "json", "Hi")

    assert (found["response"], [each["module_id"] for each in found["missing"]]) == ("Hello.", ["tool-days"])
    assert (refused.code, refused.out) == (1, "")
    assert "error: the session would run without tool-days; nothing was asked" in refused.err
    assert answer(whole)["missing"] == []


def test_what_would_be_asked_is_denied_in_a_pipe_and_allowed_with_yes(say: Say, amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("bash", command="touch made"), "{{last_tool_result}}"], guarded=True)

    denied = say("run", "--plan", plan, "Make it")
    assert (denied.code, (amplifier.work / "made").exists()) == (0, False)
    assert "--yes" in denied.out

    allowed = say("run", "--plan", plan, "--yes", "Make it")
    assert (allowed.code, (amplifier.work / "made").exists()) == (0, True)


def test_frozen_refuses_a_profile_that_was_never_compiled(say: Say) -> None:
    say("run", "--profile", "offline", "Hi")
    profile = Path(say("config", "path").out.strip()).parent / "profiles/mine.md"
    profile.parent.mkdir(parents=True, exist_ok=True)
    profile.write_text(
        "---\nprofile: {name: mine, version: 1.0.0, extends: foundation/offline, schema_version: 2}\n---\n"
    )

    said = say("run", "--profile", "mine", "--frozen", "Hi")

    assert said.code == 1
    assert "frozen" in said.err
    assert say("run", "--profile", "mine", "Hi").code == 0
    assert say("run", "--profile", "mine", "--frozen", "Hi").code == 0


def test_a_broken_plan_names_what_is_wrong(say: Say, amplifier: Any) -> None:
    file = amplifier.work / "plan.yaml"
    file.write_text(
        "session: {orchestrator: loop-nowhere, context: context-simple}\nproviders: [{module: provider-mock}]\n"
    )

    said = say("run", "--plan", str(file), "Hi")

    assert said.code == 1
    assert "loop-nowhere" in said.err


def test_a_home_that_cannot_be_used_is_named(say: Say, amplifier: Any) -> None:
    amplifier.home.write_text("a file")

    said = say("run", "Hi")

    assert said.code == 2
    assert "is not a directory" in said.err


async def test_a_session_that_another_process_holds_is_left_to_it(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Hello."])
    session_id = json.loads(amplifier("run", "--plan", plan, "-o", "json", "Hi").stdout)["session_id"]
    home = amplifierd.open_home(amplifier.home, offline=True)

    async with home.sessions.resume(session_id):
        said = await asyncio.to_thread(amplifier, "run", "--resume", session_id, "Hi")
    await home.sessions.close()

    assert (said.returncode, f"process {os.getpid()}" in said.stderr) == (3, True), said.stderr


def until(process: Any, event: str) -> None:
    for line in process.stdout:
        if json.loads(line)["event"] == event:
            return
    raise AssertionError(f"{event} did not happen: {process.stderr.read()}")


def test_ctrl_c_once_lets_the_tool_finish_and_the_session_goes_on(amplifier: Any) -> None:
    slow = call("bash", command="touch begun; for i in 1 2 3 4 5; do sleep 0.1; done; touch finished")
    plan = plan_file(amplifier.work, [slow, "Never said.", "Later."])
    process = amplifier.start("run", "--plan", plan, "-o", "jsonl", "Go")
    until(process, "tool:intent")

    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)

    assert (process.returncode, (amplifier.work / "finished").exists()) == (130, True)
    assert "then the turn ends; Ctrl-C again stops it" in err
    assert json.loads(out.splitlines()[-1])["data"]["status"] == "cancelled"
    again = amplifier("run", "--resume", "last", "-o", "json", "Go on")
    assert json.loads(again.stdout)["status"] == "completed"


def test_ctrl_c_twice_stops_at_once(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("bash", command="sleep 60"), "Never said."])
    process = amplifier.start("run", "--plan", plan, "-o", "jsonl", "Go")
    until(process, "tool:intent")

    process.send_signal(signal.SIGINT)
    assert "Ctrl-C again" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)

    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["data"]["status"] == "cancelled"


def test_a_killed_command_leaves_a_session_that_goes_on(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [{**call("bash", command="sleep 60"), "when": {"regex": "^Go$"}}, "Later."])
    process = amplifier.start("run", "--plan", plan, "-o", "jsonl", "Go")
    until(process, "tool:intent")

    process.kill()
    process.communicate(timeout=30)
    again = amplifier("run", "--resume", "last", "-o", "json", "Go on")

    assert json.loads(again.stdout)["status"] == "completed"
    assert "has been repaired" in again.stderr
