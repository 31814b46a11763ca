"""Whatever a command consists of, the terminal shows a visible form of each character that would run."""

from __future__ import annotations

import io

import pyte
from border_corpus import SAMPLES
from hypothesis import given
from hypothesis import strategies as st

from amplifier_cli.terminal.terminal_page import TerminalPage
from amplifier_system.visible import visible, visible_exactly

ODD = sorted({character for sample in SAMPLES.values() for character in sample})
COMMANDS = st.lists(
    st.sampled_from([*SAMPLES.values()]) | st.sampled_from(ODD) | st.text("ls -rm'$/;", max_size=8), max_size=20
).map("".join)


def seen(text: str) -> str:
    """Return what an emulator of a terminal shows after a line was drawn on it."""
    stream = io.StringIO()
    TerminalPage(stream).line(text)
    emulator = pyte.Screen(4000, 5)
    pyte.Stream(emulator).feed(stream.getvalue().replace("\n", "\r\n"))
    return "".join(line.rstrip() for line in emulator.display)


@given(COMMANDS)
def test_a_terminal_shows_every_character_of_a_command(command: str) -> None:
    for border in (visible, visible_exactly):
        assert seen(f"<{border(command)}>") == f"<{border(command)}>"
    assert seen(f"<{command}>") == f"<{visible(command)}>"
