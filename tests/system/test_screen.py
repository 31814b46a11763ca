"""A screen shows what is written to it, and obeys only what we mark."""

import io
import sys

import pytest

from amplifier_system.visible import Screen, screens, sequence, shown, write_exactly


def test_only_marked_sequences_are_obeyed() -> None:
    stream = io.StringIO()

    print(f"{sequence(chr(27) + '[1m')}a\x1b[1mb\x1b]0;c{sequence(chr(27) + '[0m')}", file=Screen(stream))

    assert stream.getvalue() == "\x1b[1ma\\x1b[1mb\\x1b]0;c\x1b[0m\n"


def test_a_mark_that_is_cut_is_shown_and_obeys_nothing() -> None:
    marked = sequence("\x1b[1m")

    for end in range(1, len(marked)):
        assert "\x1b" not in shown(marked[:end])


def test_what_others_print_passes_the_screen_too(capsys: pytest.CaptureFixture[str]) -> None:
    with screens():
        sys.stdout.write("a\x1b[2Jb\n")
        sys.stderr.write("c\u202e\n")

    assert capsys.readouterr() == ("a\\x1b[2Jb\n", "c\\u202e\n")


def test_what_a_program_takes_stays_exact(capsys: pytest.CaptureFixture[str]) -> None:
    with screens():
        write_exactly("a\x1b[2J\u202e")

    assert capsys.readouterr().out == "a\x1b[2J\u202e\n"
