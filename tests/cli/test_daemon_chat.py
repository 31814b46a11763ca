"""Chats whose sessions run in a daemon: what only they meet."""

import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from daemon_home import served_home
from git_repository import Repository, use_plain_git
from muted_daemon import way_to_daemon
from plans import call, plan_file
from terminal import ALT_ENTER, CTRL_C, CTRL_D, Terminal

from amplifierd.agreements import Agreement, Agreements
from amplifierd.control import background
from amplifierd.paths import Paths

WAITING = call("bash", command="touch begun; while [ ! -e go ]; do sleep 0.05; done")
MARKED = {**WAITING, "when": {"regex": "^Begin$"}}


def chat(amplifier: Any, script: list[Any], *arguments: str) -> Terminal:
    terminal = Terminal(amplifier, "chat", "--daemon", "--plan", plan_file(amplifier.work, script), *arguments)
    terminal.expect(">")
    return terminal


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "restarted"])
def test_a_daemon_that_ends_and_comes_back_is_told_and_the_chat_goes_on(
    tmp_path: Path, amplifier: Any, is_killed: bool
) -> None:
    home = tmp_path / "home"
    with served_home(home) as daemon:
        terminal = chat(replace(amplifier, home=home), [MARKED, "Here again."])
        terminal.type("Begin")
        terminal.expect("● bash")
        terminal.press(f"For later{ALT_ENTER}")
        terminal.expect("1 queued")

        if is_killed:
            os.kill(daemon.process.pid, signal.SIGKILL)
            while daemon.process.is_alive():
                time.sleep(0.01)
        else:
            os.kill(daemon.process.pid, signal.SIGTERM)
            background.stop(Paths.from_environment(home, {}))  # asked twice, it does not wait for the turn
            terminal.expect("cancelled")
        with served_home(home):
            terminal.expect("the daemon was restarted; the session continues")
            if is_killed:
                terminal.expect("failed")
            terminal.type("Go on")
            terminal.expect("Here again.")
            terminal.type("/queue")
            terminal.expect("1. For later")
            terminal.press(CTRL_D)
            assert terminal.end() == 0
    assert "this was not sent: For later" in terminal.read


def test_the_queue_of_a_session_in_the_daemon_is_shown_edited_and_dropped(amplifier: Any, served: Path) -> None:
    amplifier = replace(amplifier, home=served)
    terminal = chat(amplifier, [MARKED, "Heard: {{last_user}}", "Then: {{last_user}}"])
    terminal.type("Begin")
    terminal.expect("● bash")
    for prompt in ("first", "second", "third"):
        terminal.press(f"{prompt}{ALT_ENTER}")
        terminal.expect(f"queued: {prompt}")
    terminal.type("/queue")
    terminal.expect("3. third")
    terminal.type("/queue drop 1")
    terminal.type("/queue drop 1")
    terminal.type("/queue")
    terminal.expect("1. third")
    (amplifier.work / "go").touch()
    terminal.expect("Then: third")
    terminal.press(CTRL_D)

    assert terminal.end() == 0
    assert "not sent" not in terminal.read


def test_a_turn_is_shown_to_its_end_though_the_daemon_does_not_say_how_many_prompts_wait(
    amplifier: Any, served: Path
) -> None:
    with way_to_daemon(served) as way:
        terminal = chat(replace(amplifier, home=served), ["Here I am."])
        way.muted = ("/queue",)
        terminal.type("Hello")
        terminal.expect("Here I am.")
        terminal.expect("tokens")
        terminal.press(CTRL_D)

        assert terminal.end() == 0


def test_a_turn_goes_on_in_the_daemon_when_the_chat_is_left_and_can_be_continued(amplifier: Any, served: Path) -> None:
    amplifier = replace(amplifier, home=served)
    terminal = chat(amplifier, [MARKED, "Here: {{last_user}}"])
    terminal.type("Begin")
    terminal.expect("● bash")
    terminal.type("/quit")
    terminal.expect("the turn continues in the daemon: amplifier session attach")
    assert terminal.end() == 0

    again = Terminal(amplifier, "continue")
    again.expect(">")
    (amplifier.work / "go").touch()
    again.expect("Here: Begin")
    again.expect("tokens")
    again.type("/status")
    again.expect("1 turns")
    again.type("/compact")
    again.expect("tokens")
    again.type("/tools")
    again.expect("read_file")
    again.type("/cost")
    again.expect("tool calls")
    again.expect(">")
    again.press(CTRL_D)
    assert again.end() == 0


def test_what_a_fetched_bundle_would_get_is_asked_about_at_the_terminal_of_a_command(
    tmp_path: Path, amplifier: Any, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plain_git(monkeypatch)
    repository = Repository(tmp_path / "theirs")
    provider = "providers: [{module: provider-mock, config: {script: ['Heard.'], name: '${HOME}'}}]"
    head = "session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}"
    repository.commit({"bundle.md": f"---\nbundle: {{name: theirs, version: 1.0.0}}\n{head}\n{provider}\n---\n"})
    run = ("run", "--daemon", "--bundle", f"{repository.source}@main", "Hello")
    amplifier = replace(amplifier, home=served)

    for answer, shown in (("n", "amplifier config agree provider-mock"), ("y", "Heard.")):
        terminal = Terminal(amplifier, *run)
        terminal.expect("provider-mock would get the variable HOME")
        terminal.expect("Agree?")
        terminal.type(answer)
        terminal.expect(shown)
        terminal.end()
    assert Agreement("provider-mock", "HOME") in Agreements(Paths.from_environment(served, {})).list()
    assert amplifier(*run).stdout == "Heard.\n"


@pytest.mark.parametrize("way", ["--daemon", "--no-daemon"])
def test_a_chat_asks_about_keys_when_it_begins_when_it_changes_its_profile_and_when_it_goes_on(
    tmp_path: Path, amplifier: Any, served: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    use_plain_git(monkeypatch)
    head = "session: {orchestrator: {module: loop-basic}, context: {module: context-simple}}"
    provider = "providers: [{module: provider-mock, config: {script: [%s], name: '${%s}'}}]"
    first, second = provider % ("Heard.", "PATH"), provider % ("Changed.", "HOME")
    named = "profile: {name: them, version: 1.0.0, schema_version: 2}"
    repository = Repository(tmp_path / "theirs")
    repository.commit(
        {
            "bundle.md": f"---\nbundle: {{name: begun, version: 1.0.0}}\n{head}\n{first}\n---\n",
            "profiles/them.md": f"---\n{named}\n{head}\n{second}\n---\n",
        }
    )
    team, source = f"team{way}", f"{repository.source}@main"
    amplifier = replace(amplifier, home=served)
    agreements = Agreements(Paths.from_environment(served, {}))
    for each in agreements.list():
        agreements.remove(each)
    assert amplifier("collection", "add", team, source).returncode == 0

    terminal = Terminal(amplifier, "chat", way, "--bundle", source)
    terminal.expect("provider-mock would get the variable PATH")
    terminal.expect("Agree?")
    terminal.type("y")
    terminal.expect("/help lists the commands")
    for answer, shown in (("n", "amplifier config agree provider-mock"), ("y", "switched to")):
        terminal.type(f"/profile {team}/them")
        terminal.expect("provider-mock would get the variable HOME")
        terminal.expect("Agree?")
        terminal.type(answer)
        terminal.expect(shown)
    terminal.type("Go on")
    terminal.expect("Changed.")
    terminal.press(CTRL_D)
    assert terminal.end() == 0
    assert agreements.remove(Agreement("provider-mock", "HOME"))
    assert agreements.remove(Agreement("provider-mock", "PATH"))
    if way == "--daemon":
        return
    terminal = Terminal(amplifier, "session", "attach", "last")  # in the daemon, which has not loaded it
    terminal.expect("is idle")
    terminal.type("And on")
    terminal.expect("provider-mock would get the variable HOME")
    terminal.expect("Agree?")
    terminal.type("y")
    terminal.expect("Changed.")
    terminal.press(CTRL_C)
    assert terminal.end() == 0
    assert agreements.remove(Agreement("provider-mock", "HOME"))
