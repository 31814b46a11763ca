"""Finding out whether there is a sandbox: by running one, never by looking for it."""

import os
import resource
import stat
import sys
from pathlib import Path

import pytest

from amplifier_kit.sandbox.availability import SandboxSearch, Seatbelt, find_sandbox, works
from amplifier_kit.sandbox.bubblewrap import Bubblewrap

linux = pytest.mark.skipif(sys.platform != "linux", reason="bubblewrap is for Linux")


def executable(path: Path, script: str) -> str:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@linux
@pytest.mark.parametrize(("script", "is_working"), [("exit 0", True), ("exit 1", False), ("kill -9 $$", False)])
def test_only_the_exit_of_the_whole_command_counts(tmp_path: Path, script: str, is_working: bool) -> None:
    assert works(Bubblewrap(executable(tmp_path / "bwrap", script), disables_userns=True)) is is_working


@linux
def test_a_program_that_is_not_there_is_no_sandbox(tmp_path: Path) -> None:
    assert not works(Bubblewrap(str(tmp_path / "missing"), disables_userns=True))


@linux
def test_a_sandbox_that_cannot_even_be_set_up_does_not_work() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len([*Path("/proc/self/fd").iterdir()]), limits[1]))
    try:
        assert not works(Bubblewrap("bwrap", disables_userns=True))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@linux
def test_a_sandbox_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    script = f"echo tried >> {tmp_path}/tries; exit 1"
    search = SandboxSearch(
        lambda: [Bubblewrap(executable(tmp_path / "bwrap", script), disables_userns=True)], patience_s=60
    )

    assert [search.find(), search.find()] == [None, None]
    assert (tmp_path / "tries").read_text() == "tried\n"


@linux
def test_a_sandbox_that_was_not_done_in_time_is_tried_again(tmp_path: Path) -> None:
    busy = tmp_path / "busy"
    slow = Bubblewrap(executable(tmp_path / "bwrap", f"test ! -e {busy} || exec sleep 60"), disables_userns=True)
    search = SandboxSearch(lambda: [slow], patience_s=0.1)
    busy.touch()

    assert [search.find(), search.find()] == [None, None]
    busy.unlink()
    search.patience_s = 60

    assert [search.find(), search.find()] == [slow, slow]


@linux
def test_the_program_is_asked_for_everything_at_once(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    recorder = executable(tmp_path / "bwrap", f'tr "\\0" "\\n" < /dev/fd/$2 > {asked}; echo "$@" >> {asked}')

    assert works(Bubblewrap(recorder, disables_userns=True))

    words = asked.read_text().split()
    assert {
        "--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--disable-userns",
        "--die-with-parent", "--ro-bind", "--proc", "--dev", "--tmpfs", "--json-status-fd",
    } <= set(words)  # fmt: skip
    assert words[-1] == "true"
    assert ("--uid" in words) == (os.geteuid() == 0)


def test_the_answer_is_found_once() -> None:
    assert find_sandbox() is find_sandbox()


@pytest.mark.skipif(sys.platform == "darwin", reason="there it may well work")
def test_the_sandbox_of_another_system_does_not_work_here() -> None:
    assert not works(Seatbelt())
