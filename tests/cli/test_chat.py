"""`amplifier chat`, `continue` and `session resume` at a pseudo-terminal; and the questions of `run` there."""

import json
import os
import shlex
import signal
import termios
from dataclasses import dataclass, replace
from typing import Any

import pytest
from plans import call, plan_file
from terminal import ALT_ENTER, CTRL_C, CTRL_D, CTRL_X_CTRL_E, CTRL_Z, ENTER, Terminal, in_terminal

SLOW = call("bash", command="touch begun; sleep 0.6; touch finished")
STUCK = call("bash", command="echo > begun; sleep 25")


@pytest.fixture(params=["here", "daemon"])
def anywhere(request: pytest.FixtureRequest, amplifier: Any) -> Any:
    """The command, with sessions in its own process and in a daemon."""
    return amplifier if request.param == "here" else replace(amplifier, home=request.getfixturevalue("served"))


def chat(amplifier: Any, script: list[Any], *arguments: str, guarded: bool = False) -> Terminal:
    plan = plan_file(amplifier.work, script, guarded=guarded)
    terminal = Terminal(amplifier, "chat", "--plan", plan, *arguments)
    terminal.expect(">")
    return terminal


def test_an_answer_is_streamed_and_the_session_is_kept(amplifier: Any) -> None:
    terminal = Terminal(replace(amplifier, is_warm=False))
    terminal.expect("no model key found")
    terminal.expect(">")
    terminal.type("List files, then read notes.md")

    answer = terminal.expect("2 tool calls")
    terminal.resize(60)
    terminal.type("/status")
    terminal.expect("agent foundation/offline")
    terminal.press(CTRL_D)

    assert "● read_file notes.md" in answer
    assert "buy milk" in answer
    terminal.expect("is kept: amplifier continue")
    assert terminal.end() == 0


def test_a_broken_tool_is_named_where_one_types_and_where_a_turn_ends(anywhere: Any) -> None:
    terminal = Terminal(anywhere, "chat", "--plan", plan_file(anywhere.work, ["Hello."], broken="tool-days"))
    terminal.expect("without tool-days >")

    terminal.type("Hi")
    terminal.expect("tokens · without tool-days")

    terminal.press(CTRL_D)
    assert terminal.end() == 0


def test_an_unknown_tool_is_told_in_a_sentence(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("delegate", instruction="do it"), "Done."])
    terminal = Terminal(amplifier, "run", "--plan", plan, "Hi")

    said = terminal.expect("tokens")

    assert "✗ Tool 'delegate' not found" in said
    assert "RuntimeError" not in said
    assert terminal.end() == 0


def test_words_reach_the_agent_while_it_works_and_others_wait(anywhere: Any) -> None:
    terminal = chat(anywhere, [SLOW, "Heard: {{last_user}}", "Next: {{last_user}}"])
    terminal.type("Begin")
    terminal.expect("● bash")
    terminal.type("be quick")
    terminal.expect("told the agent: be quick")
    terminal.press(f"and then this{ALT_ENTER}")
    terminal.expect("queued: and then this")

    terminal.expect("be quick")
    terminal.expect("Next: and then this")
    terminal.type("/quit")
    assert terminal.end() == 0


def test_ctrl_c_once_stops_after_the_tool_and_the_chat_goes_on(anywhere: Any) -> None:
    terminal = chat(anywhere, [SLOW, "Never said.", "Here again."])
    terminal.type("Begin")
    terminal.expect("● bash")
    terminal.press(CTRL_C)
    terminal.expect("bash may finish, then the turn ends; Ctrl-C again stops it")
    terminal.expect("cancelled")

    assert (anywhere.work / "finished").exists()
    terminal.type("Go on")
    terminal.expect("tokens")
    terminal.type("/quit")
    assert terminal.end() == 0


def test_ctrl_c_twice_stops_at_once(anywhere: Any) -> None:
    begun = anywhere.work / "begun"
    os.mkfifo(begun)
    terminal = chat(anywhere, [STUCK, "Here again."])
    terminal.type("Begin")
    begun.read_text()  # returns when the command writes to it
    terminal.press(CTRL_C)
    terminal.expect("bash may finish")
    terminal.press(CTRL_C)
    terminal.expect("cancelled")
    terminal.type("Go on")
    terminal.expect("Here again.")
    terminal.press(CTRL_D)
    assert terminal.end() == 0


def test_questions_are_answered_once_always_or_with_a_reason(anywhere: Any) -> None:
    touch = call("bash", command="touch one")
    other = call("bash", command="touch two")
    terminal = chat(anywhere, [touch, "First.", other, "{{last_tool_result}}"], guarded=True)
    terminal.type("Begin")
    terminal.expect("[n]o, or: n REASON >")
    terminal.type("perhaps")
    terminal.expect("Please answer with one of")
    terminal.type("y")
    terminal.expect("First.")
    terminal.expect("tokens")
    assert (anywhere.work / "one").exists()

    terminal.type("Again")
    terminal.expect("[n]o, or: n REASON >")
    terminal.type("n not in this folder")
    terminal.expect("not in this folder")
    terminal.expect("tokens")
    terminal.type("/quit")

    assert terminal.end() == 0
    assert not (anywhere.work / "two").exists()


def test_run_asks_at_a_terminal_too(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("bash", command="touch made"), "Made."], guarded=True)
    terminal = Terminal(amplifier, "run", "--plan", plan, "Make it")
    terminal.expect("[n]o, or: n REASON >")
    terminal.type("a")
    terminal.expect("Made.")

    assert terminal.end() == 0
    assert (amplifier.work / "made").exists()


def test_ctrl_c_at_a_question_is_a_no_and_stops_the_turn(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, [call("bash", command="touch made"), "Never said."], guarded=True)
    terminal = Terminal(amplifier, "run", "--plan", plan, "Make it")
    terminal.expect("[n]o, or: n REASON >")
    terminal.press(CTRL_C)
    terminal.expect("stopping")

    assert terminal.end() == 130
    assert not (amplifier.work / "made").exists()


def test_what_agents_do_is_shown_below_with_what_they_used(amplifier: Any) -> None:
    seen = {"when": {"contains": "Look into notes.md", "role": "user"}, **call("read_file", file_path="notes.md")}
    script = [
        seen,
        {"when": {"tool": "read_file"}, "text": "Milk."},
        {"when": {"tool": "task"}, "text": "It says milk."},
        call("task", agent="reader", instruction="Look into notes.md"),
    ]
    agents = {"reader": {"description": "Reads", "instruction": "You read."}}
    plan = plan_file(amplifier.work, script, agents=agents)
    terminal = Terminal(amplifier, "run", "--plan", plan, "What do they say?")

    terminal.expect("▸ agent reader")
    terminal.expect("● read_file notes.md")
    terminal.expect("▪ agent reader is done:")
    terminal.expect("It says milk.")
    assert terminal.end() == 0


def test_the_commands_of_a_chat(anywhere: Any) -> None:
    edit = {"when": {"contains": "Write it"}, **call("write_file", file_path="new.txt", content="new\n")}
    terminal = chat(anywhere, [edit, {"when": {"tool": "write_file"}, "text": "Written."}, "Hello."])
    terminal.type("/help")
    terminal.expect("/quit")
    terminal.type("/halp")
    terminal.expect("did you mean help?")
    terminal.type("Write it")
    terminal.expect("Written.")
    terminal.expect("tokens")
    terminal.type("/diff")
    terminal.expect("+new")
    terminal.type("/context")
    terminal.expect("in the last request")
    terminal.type("/rename The file")
    terminal.expect("'The file'")
    terminal.type("/model other")
    terminal.expect("switched to other")
    terminal.type("/save talk.md")
    terminal.expect("saved in")
    terminal.type("/undo")
    terminal.expect("turn 1 is undone")
    terminal.type("Hello")
    terminal.expect("tokens")
    terminal.type("/fork")
    terminal.expect("continues from here")
    terminal.type("/clear")
    terminal.expect("new session")
    terminal.type("/queue")
    terminal.expect("the queue is empty")
    terminal.type("/quit")

    assert terminal.end() == 0
    assert "Written." in (anywhere.work / "talk.md").read_text()
    assert not (anywhere.work / "new.txt").exists()


def test_a_goal_is_worked_on_until_its_check_succeeds(anywhere: Any) -> None:
    make = call("bash", command="touch goal")
    terminal = chat(anywhere, ["I begin.", make, "Now it is there."])
    terminal.type("/goal make a file --check 'test -e goal' --max-turns 3")
    terminal.expect("failed with 1 after turn 1 of 3")
    terminal.expect("goal: reached after 2 turns")
    terminal.type("/goal nothing")
    terminal.expect("a goal needs a text and a command")
    terminal.type("/quit")
    assert terminal.end() == 0


def test_a_folder_is_trusted_before_its_settings_and_commands_count(amplifier: Any) -> None:
    folder = amplifier.work / ".amplifier"
    (folder / "commands").mkdir(parents=True)
    (folder / "settings.yaml").write_text("profile: foundation/offline\n")
    (folder / "commands/look.md").write_text("---\ndescription: Look around\n---\nread $ARGUMENTS\n")
    terminal = Terminal(amplifier, "chat")
    terminal.expect("Trust this folder?")
    terminal.type("y")
    terminal.expect(">")
    terminal.type("/look notes.md")
    terminal.expect("buy milk")
    terminal.press(CTRL_D)
    assert terminal.end() == 0
    listed = amplifier("config", "get", "profile", "--json")
    assert json.loads(listed.stdout)["from"] == "project"


def test_the_last_session_of_the_directory_goes_on(amplifier: Any) -> None:
    assert amplifier("run", "--profile", "offline", "List files").returncode == 0

    terminal = Terminal(replace(amplifier, is_warm=False), "continue")
    terminal.expect(">")
    terminal.type("Read notes.md")
    terminal.expect("buy milk")
    terminal.expect("tool call")
    terminal.type("/status")
    terminal.expect("2 turns")
    terminal.press(CTRL_D)

    assert terminal.end() == 0


@pytest.mark.parametrize("arguments", [["chat"], ["continue"], ["session", "resume", "last"]])
def test_a_chat_in_a_pipe_says_what_to_use_instead(amplifier: Any, arguments: list[str]) -> None:
    run = amplifier(*arguments)

    assert (run.returncode, "amplifier run" in run.stderr) == (2, True)


def test_a_key_that_is_typed_between_two_prompts_is_for_the_second(amplifier: Any) -> None:
    saved = amplifier.work / "saved.md"
    os.mkfifo(saved)
    terminal = chat(amplifier, ["Hello."])
    terminal.type(f"/save {saved}")
    terminal.expect_modes(termios.ISIG)  # a prompt takes Ctrl-C for a key

    terminal.press(CTRL_D)
    saved.read_text()  # which the chat waits for
    terminal.expect("is kept: amplifier continue")

    assert terminal.end() == 0


def test_the_terminal_is_given_back_when_a_chat_is_ended_by_a_signal(amplifier: Any) -> None:
    terminal = chat(amplifier, ["Hello."])

    terminal.signal(signal.SIGTERM)

    terminal.expect_modes(termios.ICANON | termios.ECHO)
    terminal.end()


@dataclass
class InShell:
    """A shell in the place of the command."""

    amplifier: Any

    @property
    def environment(self) -> dict[str, str]:
        return dict(self.amplifier.environment)

    def in_terminal(self, arguments: Any, environment: dict[str, str], columns: int) -> Any:
        shell = ["/bin/bash", "--norc", "--noprofile", "-i"]
        return in_terminal(shell, cwd=self.amplifier.work, environment=environment, columns=columns)


def test_a_chat_can_be_stopped_and_goes_on(amplifier: Any) -> None:
    plan = plan_file(amplifier.work, ["Hello again."])
    command = shlex.join(amplifier.command(["chat", "--plan", plan]))
    shell = Terminal(InShell(amplifier))
    shell.type(command)
    shell.expect("Ctrl-D ends the chat")
    shell.expect(">")

    shell.press(CTRL_Z)
    shell.expect("Stopped")
    shell.type("stty -a; fg")
    assert " icanon " in shell.expect("echoke")
    shell.expect(">")
    shell.type("Hello")
    shell.expect("Hello again.")
    shell.press(CTRL_D)
    shell.expect("is kept: amplifier continue")
    shell.type("stty -a; exit")

    shell.end()
    assert " icanon " in shell.read.rpartition("is kept")[2]


def test_a_prompt_can_be_written_in_an_editor_that_reads_lines(amplifier: Any) -> None:
    editor = amplifier.work / "editor"
    editor.write_text('#!/bin/sh\necho "name a fruit"\nread -r line\necho "$line" > "$1"\n')
    editor.chmod(0o755)
    amplifier.variables["EDITOR"] = str(editor)
    terminal = chat(amplifier, ["I heard: {{last_user}}"])

    terminal.press(CTRL_X_CTRL_E)
    terminal.expect("name a fruit")
    terminal.type("quince")
    terminal.expect("quince")  # as it is typed
    terminal.expect("quince")  # in the prompt
    terminal.press(ENTER)

    terminal.expect("I heard: quince")
    terminal.type("/quit")
    assert terminal.end() == 0


def test_what_goes_on_shows_where_it_was_left(anywhere: Any) -> None:
    plan = plan_file(anywhere.work, [{"text": "You asked: {{last_user}}", "repeat": True}])
    assert anywhere("run", "--plan", plan, "Which fruit is golden?").returncode == 0
    assert anywhere("run", "--resume", "last", "And which is brown?").returncode == 0

    for arguments, is_whole in ((["continue"], False), (["session", "resume", "last", "--full"], True)):
        terminal = Terminal(anywhere, *arguments)
        shown = terminal.expect("You asked: And which is brown?")
        assert "Which fruit is golden? · 2 turns" in shown
        assert "> And which is brown?" in shown
        assert ("You asked: Which fruit is golden?" in shown) is is_whole
        terminal.expect(">")
        terminal.press(CTRL_D)
        assert terminal.end() == 0
