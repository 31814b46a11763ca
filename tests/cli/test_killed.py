"""The command is killed in the middle of its turns, and the session goes on: `make soak` does it a hundred times."""

from pathlib import Path

from command_soak import soak
from warm_python import Keeper


def test_amplifier_continue_goes_on_after_five_kills_and_nothing_is_lost_or_done_twice(
    tmp_path: Path, keeper: Keeper
) -> None:
    met = soak(tmp_path / "killed", 5, 1, "continue", keeper)

    assert met.total() == 5
