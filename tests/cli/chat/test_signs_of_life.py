"""What a chat shows while a turn runs, as a terminal emulator sees it."""

import json
import time
from collections.abc import Iterator
from typing import Any

import pyte
import pytest
from openai_server import KEY, OpenAIServer, Said, failed
from terminal import CTRL_D, Terminal

COLUMNS = 60


@pytest.fixture
def vendor() -> Iterator[OpenAIServer]:
    with OpenAIServer() as server:
        yield server


class Screen:
    """A chat in an emulated terminal: `lines` are what a person sees now."""

    def __init__(self, amplifier: Any, base_url: str) -> None:
        config = {"api_key": KEY, "base_url": base_url, "min_retry_delay": 4, "retry_jitter": False}
        plan = {
            "session": {"orchestrator": {"module": "loop-streaming"}, "context": {"module": "context-simple"}},
            "providers": [{"module": "provider-openai", "config": config}],
        }
        (amplifier.work / "plan.json").write_text(json.dumps(plan))
        self.terminal = Terminal(amplifier, "chat", "--plan", "plan.json", columns=COLUMNS)
        self._screen = pyte.Screen(COLUMNS, 30)
        self._stream = pyte.Stream(self._screen)

    @property
    def lines(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display if line.strip()]

    def until(self, *texts: str) -> list[str]:
        """Wait until the screen has all of some texts, and return its lines."""
        limit = time.monotonic() + 45
        while not all(any(text in line for line in self.lines) for text in texts):
            assert time.monotonic() < limit, self.lines
            self._stream.feed(self.terminal.next_piece())
        return self.lines


def test_a_turn_shows_that_it_lives_and_leaves_nothing_of_that_behind(amplifier: Any, vendor: OpenAIServer) -> None:
    story = "Once upon a time there was a cat that went out to see the world. " * 3
    vendor.say(Said(story * 10, stream={"delay": 0.02}))
    screen = Screen(amplifier, vendor.base_url)
    screen.until("Ctrl-D ends the chat")
    screen.terminal.type("Tell me a story")
    while_speaking = screen.until(" 2 s · ", "gpt-5.5")
    screen.terminal.type("make it short")
    screen.until("told the agent")
    screen.terminal.press("\x1b")
    after = screen.until("cancelled · ")

    (status,) = [line for line in while_speaking if "gpt-5.5" in line]
    assert " tok · gpt-5.5 · Esc stops" in status
    assert not status.endswith(("Ente", "Enter", "Alt", "…"))  # a hint is whole, or is not there
    assert len(status) < COLUMNS
    assert [line for line in after if line.startswith("> ")][:2] == ["> Tell me a story", "> make it short"]
    assert not any("gpt-5.5" in line or "Esc stops" in line for line in after)
    screen.terminal.press("\x03")
    screen.terminal.press(CTRL_D)


def test_a_retry_and_a_server_that_refuses_connections_are_told_in_seconds(
    amplifier: Any, vendor: OpenAIServer
) -> None:
    vendor.script("POST /v1/responses", failed(429, "rate_limit_exceeded", "Slow down."))
    screen = Screen(amplifier, vendor.base_url)
    screen.until("Ctrl-D ends the chat")
    screen.terminal.type("Begin")
    screen.until("attempt 2 of 6 in 4 s: rate limit (429)")
    screen.until("Hello")
    screen.terminal.press(CTRL_D)
    assert screen.terminal.end() == 0

    nowhere = Screen(amplifier, "http://127.0.0.1:9/v1")
    nowhere.until("Ctrl-D ends the chat")
    begun = time.monotonic()
    nowhere.terminal.type("Begin")
    told = nowhere.until("failed · ")
    assert time.monotonic() - begun < 20  # one more attempt after four seconds, and not five
    assert any("error: openai at http://127.0.0.1:9" in line for line in told)
    assert any("fix: " in line for line in told)
    nowhere.terminal.press(CTRL_D)
