"""`amplifierd logs`: the end of the log, and with `-f` what is written to it from then on."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
import warm_python

from amplifierd.control.main import main
from amplifierd.paths import Paths


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def log(home: Path) -> Path:
    file = Paths.from_environment(home).logs / "daemon.log"
    file.parent.mkdir(parents=True)
    return file


def add(log: Path, text: str) -> None:
    with log.open("a") as file:
        file.write(text)


def test_new_lines_are_shown_when_they_are_whole_also_after_the_log_was_rotated(home: Path, log: Path) -> None:
    log.write_text("one\ntwo\n")
    command = [sys.executable, "-m", "amplifierd", "--home", str(home), "logs", "-f", "-n", "1"]
    with warm_python.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        shown = [following.stdout.readline()]
        add(log, "three\nfo")
        shown.append(following.stdout.readline())
        add(log, "ur\n")
        shown.append(following.stdout.readline())
        log.rename(log.with_suffix(".log.1"))
        add(log, "five\n")
        shown.append(following.stdout.readline())
        following.send_signal(signal.SIGINT)
        assert following.wait(30) == 0

    assert shown == ["two\n", "three\n", "four\n", "five\n"]


def test_a_home_without_a_log_says_so(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--home", str(home), "logs"]) == 0

    told = capsys.readouterr()
    assert (told.out, "there is no log yet" in told.err) == ("", True)
