"""Ctrl-C and Esc at a pseudo-terminal, while a vendor's model speaks."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from openai_server import KEY, OpenAIServer, Said, failed
from terminal import ALT_ENTER, CTRL_C, CTRL_D, Terminal

ESC = "\x1b"
STORY = Said("Once upon a time. " * 400, stream={"delay": 0.02})
BASH = [("call_1", "bash", {"command": "touch begun; while ! test -e go; do sleep 0.05; done; touch finished"})]


@pytest.fixture
def vendor() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


@pytest.fixture(params=["here", "daemon"])
def anywhere(request: pytest.FixtureRequest, amplifier: Any) -> Any:
    """The command, with sessions in its own process and in a daemon."""
    return amplifier if request.param == "here" else replace(amplifier, home=request.getfixturevalue("served"))


def chat(amplifier: Any, vendor: OpenAIServer) -> Terminal:
    rates = {"gpt-5.5": {"input_per_m": 5, "output_per_m": 30}}
    config = {"api_key": KEY, "base_url": vendor.base_url, "rates": rates, "min_retry_delay": 5}
    plan = {
        "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
        "providers": [{"module": "provider-openai", "config": config}],
        "tools": [{"module": "tool-bash", "config": {"sandbox": "off"}}],
    }
    (amplifier.work / "plan.json").write_text(json.dumps(plan))
    terminal = Terminal(amplifier, "chat", "--plan", "plan.json", columns=120)
    terminal.expect(">")
    return terminal


def test_one_key_stops_a_model_that_speaks_and_gives_back_what_was_typed(anywhere: Any, vendor: OpenAIServer) -> None:
    vendor.say(STORY, "You said it all.")
    terminal = chat(anywhere, vendor)
    terminal.type("Tell me a story")
    terminal.expect("Once")
    terminal.expect("time.")  # as it comes
    terminal.type("make it short")
    terminal.expect("told the agent: make it short")
    terminal.press(f"and then a poem{ALT_ENTER}")
    terminal.expect("queued: and then a poem")
    terminal.type("in rhymes")
    terminal.expect("told the agent: in rhymes")

    terminal.press(CTRL_C)

    ended = terminal.expect("cancelled · ")
    used = terminal.expect("$")
    assert "Once upon a time." in ended  # what had come is shown
    assert " 0 tokens" not in used
    asyncio.run(vendor.until(lambda: vendor.requests[0].disconnected))
    assert len(vendor.requests) == 1
    terminal.press("\r")  # the three are in the line again, in the order in which they were typed
    terminal.expect("You said it all.")
    said = vendor.sent()[-1]["input"]
    assert [one["content"][0]["text"] for one in said if one.get("role") == "user"][-1] == (
        "make it short\nand then a poem\nin rhymes"
    )
    assert any(one.get("role") == "assistant" and "Once upon" in json.dumps(one) for one in said)
    terminal.type("/queue")
    terminal.expect("the queue is empty")
    terminal.press(CTRL_D)
    assert terminal.end() == 0


def test_esc_lets_a_running_tool_finish_and_stops_it_when_pressed_again(amplifier: Any, vendor: OpenAIServer) -> None:
    vendor.say(Said(calls=BASH), "Never said.", Said(calls=BASH))
    terminal = chat(amplifier, vendor)
    terminal.type("Wait")
    terminal.expect("● bash")
    terminal.press(ESC)
    terminal.expect("bash may finish, then the turn ends; Ctrl-C again stops it")
    (amplifier.work / "go").touch()
    terminal.expect("cancelled · ")
    assert (amplifier.work / "finished").exists()
    assert len(vendor.requests) == 1

    (amplifier.work / "go").unlink()
    (amplifier.work / "finished").unlink()
    terminal.type("Wait again")
    terminal.expect("Never said.")
    terminal.expect("tokens")
    terminal.type("And again")
    terminal.expect("● bash")
    terminal.press(ESC)
    terminal.expect("bash may finish")
    terminal.press(ESC)
    terminal.expect("cancelled · ")
    assert not (amplifier.work / "finished").exists()
    terminal.press(CTRL_D)
    assert terminal.end() == 0


def test_what_is_typed_while_a_turn_fails_goes_back_to_the_line(amplifier: Any, vendor: OpenAIServer) -> None:
    vendor.script("POST /v1/responses", failed(500, message="out of order"), failed(401, message="no such key"))
    terminal = chat(amplifier, vendor)
    terminal.type("Begin")
    terminal.expect("attempt 2")
    terminal.type("mind the gap")
    terminal.expect("told the agent: mind the gap")
    terminal.expect("no such key")
    terminal.press("\r")
    terminal.expect("Hello")
    assert "mind the gap" in json.dumps(vendor.sent()[-1]["input"][-1])
    terminal.press(CTRL_D)
    assert terminal.end() == 0
