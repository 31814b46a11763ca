"""The command is killed in the middle of its turns, and the session goes on: `make soak` does it a hundred times."""

import sys
from pathlib import Path
from typing import Any

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1] / "stand_ins")]

from command_soak import soak
from terminal import CTRL_D, Terminal


def test_continue_goes_on_after_five_kills_and_nothing_is_lost_or_done_twice(amplifier: Any) -> None:
    place = amplifier.work.parent / "killed"

    met = soak(place, 5, 1)

    assert met.total() == 5
    amplifier.home, amplifier.work = place / "home", place / "work"
    terminal = Terminal(amplifier, "continue", "--yes")
    terminal.expect(">")
    terminal.type("read notes.md")
    terminal.expect("# Notes")
    terminal.press(CTRL_D)
    assert terminal.end() == 0
