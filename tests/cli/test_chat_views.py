"""What a chat shows beyond answers: lines in full, what fills the window, agents at work, images, notifications."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from plans import call, plan_file
from terminal import ALT_ENTER, CTRL_C, CTRL_D, Terminal

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
CTRL_O, CTRL_V = "\x0f", "\x16"


def chat(amplifier: Any, script: list[Any], **plan: Any) -> Terminal:
    terminal = Terminal(amplifier, "chat", "--plan", plan_file(amplifier.work, script, **plan))
    terminal.expect(">")
    return terminal


def test_tool_calls_and_thoughts_expand_and_the_context_is_compacted(amplifier: Any) -> None:
    (amplifier.work / "long.txt").write_text("\n".join(f"line {number} of a long file" for number in range(400)))
    thought = "I should look at every line of it, " * 6 + "and then answer"
    read = {"thinking": thought, **call("read_file", file_path="long.txt")}
    again = {"when": {"contains": "Again"}, "text": "Read before."}
    terminal = chat(
        amplifier, [{**read, "when": {"contains": "Read"}}, {"when": {"tool": "read_file"}, "text": "Done."}, again]
    )
    terminal.type("Read it")
    terminal.expect("● read_file long.txt ·2")
    terminal.expect("tokens")

    terminal.type("/expand 1")
    terminal.expect("and then answer")
    terminal.press(CTRL_O)
    terminal.expect("● read_file")
    terminal.expect("file_path: long.txt")
    terminal.expect("line 399 of a long file")
    terminal.type("/expand 9")
    terminal.expect("they go from 1 to 2")
    terminal.type("Again")
    terminal.expect("Read before.")
    terminal.expect("tokens")
    terminal.type("/context")
    terminal.expect("message")
    terminal.expect("in the last request")
    terminal.type("/compact")
    terminal.expect("tokens saved")
    terminal.expect("the session keeps all of them")
    terminal.type("/compact")
    terminal.expect("nothing can be left out")
    terminal.press(CTRL_D)

    assert terminal.end() == 0
    kept = json.loads(amplifier("session", "show", "last", "--json").stdout)["messages"]
    assert any("line 200 of a long file" in str(message["content"]) for message in kept)


def test_agents_are_a_tree_with_what_they_used_so_far(amplifier: Any) -> None:
    usage = {"input_tokens": 1000, "output_tokens": 234, "cost_usd": 0.25}
    look = {
        "when": {"contains": "Look into", "role": "user"},
        "usage": usage,
        **call("read_file", file_path="notes.md"),
    }
    stuck = {"when": {"tool": "read_file"}, "text": "Late.", "latency_ms": 60_000}
    terminal = chat(
        amplifier,
        [look, stuck, call("task", agent="reader", instruction="Look into notes.md")],
        agents={"reader": {"description": "Reads", "instruction": "You read."}},
    )
    terminal.type("What do they say?")
    terminal.expect("▸ agent reader")
    terminal.expect("└ reader: thinking · 1,234 tokens · $0.2500")
    terminal.press(CTRL_C)
    terminal.press(CTRL_C)
    terminal.expect("▪ agent reader is done:")
    terminal.expect("cancelled")
    terminal.press(CTRL_D)

    assert terminal.end() == 0


@pytest.fixture
def clipboard(amplifier: Any, tmp_path: Path) -> Any:
    """A machine whose clipboard holds an image."""
    (tmp_path / "clip.png").write_bytes(PNG)
    program = tmp_path / "bin/wl-paste"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\n[ "$3" = image/png ] && cat {tmp_path / "clip.png"}\n')
    program.chmod(0o755)
    amplifier.variables["PATH"] = f"{program.parent}:{amplifier.environment['PATH']}"
    return amplifier


def test_images_are_pasted_as_files_and_from_the_clipboard(clipboard: Any) -> None:
    screen = clipboard.work / "my screen.png"
    screen.write_bytes(PNG)
    terminal = chat(clipboard, ["I see.", "Just words."])
    terminal.press(f"\x1b[200~'{screen}'\x1b[201~")
    terminal.expect("[image 1: my screen.png]")
    terminal.press(CTRL_V)
    terminal.expect("[image 2: clipboard]")
    terminal.type(" what is this?")
    terminal.expect("I see.")
    terminal.expect("tokens")
    terminal.press("\x1b[200~two\nlines of it's text\x1b[201~")
    terminal.type("")
    terminal.expect("Just words.")
    terminal.expect("tokens")
    terminal.press(CTRL_D)

    assert terminal.end() == 0
    kept = json.loads(clipboard("session", "show", "last", "--json").stdout)["messages"]
    first, images, second = [message["content"] for message in kept if message["role"] == "user"]
    assert [base64.b64decode(block["source"]["data"]) for block in images] == [PNG, PNG]
    assert first == "[image 1: my screen.png][image 2: clipboard] what is this?"
    assert second == "two\nlines of it's text"


def test_a_person_is_called_when_a_long_turn_ends_and_when_the_agent_waits(amplifier: Any) -> None:
    amplifier.variables |= {"AMPLIFIER_NOTIFY": "desktop", "AMPLIFIER_BELL_AFTER": "0.0001"}
    amplifier.variables |= {"DISPLAY": "", "WAYLAND_DISPLAY": "", "TERM_PROGRAM": ""}
    terminal = chat(amplifier, [call("bash", command="touch one"), "Done."], guarded=True)
    terminal.type("Begin")
    terminal.expect("\x1b]777;notify;amplifier;the agent is waiting for an answer\x1b\\\x07")
    terminal.expect("[n]o, or: n REASON >")
    terminal.type("y")
    terminal.expect("\x1b]777;notify;amplifier;the turn has ended: completed\x1b\\\x07")
    terminal.press(CTRL_D)

    assert terminal.end() == 0


def test_what_waits_can_be_dropped_and_edited(amplifier: Any) -> None:
    slow = {"when": {"contains": "Begin"}, **call("bash", command="while ! test -e go; do sleep 0.05; done")}
    terminal = chat(
        amplifier, [slow, {"when": {"tool": "bash"}, "text": "First."}, "Then: {{last_user}}", "Then: {{last_user}}"]
    )
    terminal.type("Begin")
    terminal.expect("● bash")
    for prompt in ("one", "two", "three"):
        terminal.press(f"{prompt}{ALT_ENTER}")
        terminal.expect(f"queued: {prompt}")
    terminal.type("/queue")
    terminal.expect("3. three")
    terminal.type("/queue drop 1")
    terminal.type("/queue edit 1")
    terminal.expect("> two")
    terminal.press(f" or four{ALT_ENTER}")
    terminal.expect("queued: two or four")
    (amplifier.work / "go").touch()
    terminal.expect("Then: three")
    terminal.expect("Then: two or four")
    terminal.type("/cost")
    terminal.expect("tokens in")
    terminal.type("/tools")
    terminal.expect("read_file")
    terminal.type("/agents")
    terminal.expect("this agent has no sub-agents")
    terminal.type("/profile")
    terminal.expect("none: the session runs a bundle or a plan")
    terminal.type("/effort low")
    terminal.expect("effort low")
    terminal.type("/quit")

    assert terminal.end() == 0
    assert "Then: one" not in terminal.read


def test_a_chat_and_the_stored_session_say_that_it_is_tainted(amplifier: Any) -> None:
    look = call("bash", command="echo https://news.example/ ~/diary")
    terminal = chat(amplifier, [look, "Seen."], guarded=True)
    terminal.type("Look")
    terminal.expect("this session is tainted: it has read content from outside and private data")
    terminal.expect("tokens")
    terminal.expect("tainted")  # above the input
    terminal.type("/status")
    terminal.expect("tainted: it has read")
    terminal.press(CTRL_D)
    assert terminal.end() == 0

    shown = amplifier("session", "show", "last").stdout
    assert "tainted" in shown
    assert json.loads(amplifier("session", "show", "last", "--json").stdout)["session"]["tainted"] is True
