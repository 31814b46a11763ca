"""What is shown is what is: nothing from outside is obeyed by the terminal, and nothing of it is lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from border_corpus import LINES, LONE, SAMPLES, hidden
from plans import call, plan_file
from terminal import CTRL_C, CTRL_D, Terminal

from amplifier_system.visible import visible, visible_line
from amplifierd.paths import Paths

ALL = "\n\n".join(LINES)
LINE = "".join(LINES)
OURS = re.compile(r"\x1b\[(?:\d+|\d+;\d+)?m|\r\x1b\[2K|\r\n|\x07$")
EDITOR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\b\a]")
OF_SAMPLES = ("\x1b[7;9r", "\x1b[5;35;46m", "\x1b]", "\x1bP", "\x1b_", "\x1b^", "\x1bc")


class Wide(Terminal):
    """A terminal in which no line of these tests is broken."""

    def __init__(self, amplifier: Any, *arguments: str) -> None:
        super().__init__(amplifier, *arguments, columns=2000)

    @property
    def raw(self) -> str:
        return "".join(self._shown)


def shown(amplifier: Any, *arguments: str) -> str:
    """Run a command in a terminal and return what reached it, without our own colours."""
    terminal = Wide(amplifier, *arguments)
    terminal.end()
    text = OURS.sub(lambda found: "\n" if found[0] == "\r\n" else "", terminal.raw)
    assert hidden(text) == set()
    return text


def missing(text: str, lines: list[str] = LINES) -> list[str]:
    return [repr(line) for line in lines if visible_line(line) not in text]


@pytest.fixture
def hostile(amplifier: Any) -> Any:
    """A home with a session in which everything is hostile: prompt, name, answer, thought, input and output."""
    (amplifier.work / "out.txt").write_text(ALL, encoding="utf-8", newline="")
    amplifier.work.joinpath(LINES[3].replace("/", "")[:40]).write_text("")
    script = [
        {"thinking": LINE, **call("read_file", file_path="out.txt")},
        call("edit_file", file_path=LINE, old_string=ALL, new_string=f"{ALL}!"),
        call(f"no{LINE}", **{f"key{LINE}": f"value{LINE}{LONE}"}),
        ALL,
    ]
    amplifier.plan = plan_file(amplifier.work, script)
    return amplifier


def test_nothing_of_a_turn_is_obeyed_or_lost_at_a_terminal(hostile: Any) -> None:
    text = shown(hostile, "run", "--plan", hostile.plan, f"Do {LINE}")

    assert missing(text) == []

    hostile("session", "rename", "last", LINE.replace("\x00", ""))
    for command in (("list",), ("show", "last"), ("search", "Do"), ("show", "last", "--json"), ("list", "--json")):
        text = shown(hostile, "session", *command)
        if "--json" in command:
            assert json.loads(text)
        assert missing(text, LINES if command == ("show", "last") else []) == []


def test_the_stream_of_events_has_no_raw_character_and_loses_none(hostile: Any) -> None:
    text = shown(hostile, "run", "-o", "jsonl", "--plan", hostile.plan, "Do it")
    done = [event for event in map(json.loads, text.splitlines()) if event["event"] == "execution:done"]

    assert done[-1]["data"]["response"] == ALL


def test_an_answer_that_goes_into_a_pipe_is_exact(hostile: Any) -> None:
    assert hostile("run", "--plan", hostile.plan, "Do it").stdout == f"{ALL}\n".replace(
        "\r", "\n"
    )  # as the test reads it


def test_a_chat_obeys_nothing(hostile: Any) -> None:
    terminal = Wide(hostile, "chat", "--plan", hostile.plan)
    terminal.expect(">")
    terminal.type("Do it")
    terminal.expect("tokens")
    for command in ("/expand 1", "/expand 2", "/expand 4", f"/rename {visible(LINE)}", "/status", "/context"):
        terminal.type(command)
        terminal.expect(">")
    terminal.press("@\t")
    terminal.press(CTRL_D)
    terminal.press("\x15" + CTRL_D)
    terminal.end()

    assert hidden(EDITOR.sub("", terminal.raw)) == set()
    assert [code for code in OF_SAMPLES if code in terminal.raw] == []
    assert missing(EDITOR.sub("", terminal.raw)) == []


def test_names_and_work_of_agents_are_shown_in_lines_and_in_their_tree(amplifier: Any) -> None:
    name = f"helper{visible_line('x')}{SAMPLES['title without an end']}{SAMPLES['override of direction']}"
    script = [
        {"when": {"contains": "Delegate"}, **call("task", agent=name, instruction=f"Look {LINE}")},
        {"when": {"contains": "Look"}, "text": ALL},
        "Done.",
    ]
    plan = plan_file(amplifier.work, script, agents={name: {"description": LINE, "instruction": "Help."}})

    text = shown(amplifier, "run", "--plan", plan, "Delegate it")

    assert visible(name) in text


def test_errors_of_servers_are_shown(amplifier: Any) -> None:
    failing = {"error": {"type": "auth", "message": f"refused {LINE}"}}
    text = shown(amplifier, "run", "--plan", plan_file(amplifier.work, [failing]), "Do it")

    assert missing(text) == []

    text = shown(amplifier, "--debug", "run", "--plan", str(amplifier.work / LINE.replace("/", "")[:40]), "Do it")
    assert "Traceback" in text or "error" in text


def test_logs_are_shown_whatever_wrote_them(amplifier: Any) -> None:
    logs = Paths.from_environment(amplifier.home).logs
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "daemon.log").write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8", newline="")

    assert missing(shown(amplifier, "daemon", "logs")) == []


def test_logs_that_are_followed_are_shown_whatever_writes_them(amplifier: Any) -> None:
    file = Paths.from_environment(amplifier.home).logs / "daemon.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("it begins\n")
    terminal = Wide(amplifier, "daemon", "logs", "-f")
    terminal.expect("it begins")
    with file.open("a", encoding="utf-8", newline="") as log:
        log.write("".join(f"{line}\n" for line in [*LINES, "it ends"]))
    terminal.expect("it ends")
    terminal.press(CTRL_C)
    terminal.end()

    text = OURS.sub(lambda found: "\n" if found[0] == "\r\n" else "", terminal.raw)
    assert hidden(text) == set()
    assert missing(text) == []


def test_a_tree_of_agents_at_work_and_their_notifications_obey_nothing(amplifier: Any) -> None:
    name = f"helper{SAMPLES['title without an end']}{SAMPLES['override of direction']}"
    amplifier.variables |= {"AMPLIFIER_NOTIFY": "desktop", "AMPLIFIER_BELL_AFTER": "0.0001"}
    amplifier.variables |= {"DISPLAY": "", "WAYLAND_DISPLAY": "", "TERM_PROGRAM": ""}
    script = [
        {"when": {"contains": "Look into", "role": "user"}, **call(f"no{LINE}", file_path=LINE)},
        {"when": {"tool": f"no{LINE}"}, "text": "Late.", "latency_ms": 60_000},
        call("task", agent=name, instruction=f"Look into {LINE}"),
    ]
    plan = plan_file(amplifier.work, script, agents={name: {"description": LINE, "instruction": "Help."}})
    terminal = Wide(amplifier, "chat", "--plan", plan)
    terminal.expect(">")
    terminal.type("Delegate it")
    terminal.expect(f"└ {visible_line(name)}: thinking")
    terminal.press(CTRL_C)
    terminal.press(CTRL_C)
    ours = "\x1b]777;notify;amplifier;the turn has ended: cancelled\x1b\\\x07"
    terminal.expect(ours)
    terminal.press(CTRL_D)
    terminal.end()

    raw = terminal.raw.replace(ours, "")
    assert hidden(EDITOR.sub("", raw)) == set()
    assert [code for code in OF_SAMPLES if code in raw] == []
