"""A fork that is made for the parent: its child in every way, and a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amplifier_system.forking import ForkedChild, replace_shown

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there are no such forks elsewhere")

PROGRAM = """
import json, os, random, signal, sys, threading
from pathlib import Path
from amplifier_system.forking import fork_for_parent, replace_shown

def tell(**facts):
    sys.stdout.write(json.dumps(facts) + "\\n")
    sys.stdout.flush()

for ending in ("7", "KILL"):
    if fork_for_parent() == 0:
        heard = []
        thread = threading.Thread(target=lambda: heard.append(threading.get_native_id()))
        thread.start()
        thread.join()
        replace_shown("OLD_WORD", "NEW_WORD")
        shown = [Path(f"/proc/self/{name}").read_text() for name in ("cmdline", "environ")]
        tell(
            pid=os.getpid(),
            parent=os.getppid(),
            is_main=threading.get_native_id() == os.getpid() and heard != [os.getpid()],
            random=random.random(),
            shown=[("NEW_WORD" in text, "OLD_WORD" in text) for text in shown],
        )
        if ending == "7":
            os._exit(7)
        signal.raise_signal(signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def told() -> list[dict[str, Any]]:
    """What two forks tell of themselves, with how they ended as `code`."""
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM, "OLD_WORD"],
        env={"OLD_WORD": "1", "PYTHONPATH": str(Path(replace_shown.__code__.co_filename).parents[1])},
        capture_output=True,
        check=True,
        timeout=60,
    )
    forks = [json.loads(line) for line in program.stdout.splitlines()]
    for fork in forks:
        fork["code"] = ForkedChild(fork["pid"]).wait()
    return forks


def test_the_parent_has_it_as_a_child_and_learns_how_it_ended(told: list[dict[str, Any]]) -> None:
    assert [fork["parent"] for fork in told] == [os.getpid()] * 2
    assert sorted(fork["code"] for fork in told) == [-9, 7]


def test_it_knows_which_process_it_is_and_starts_threads(told: list[dict[str, Any]]) -> None:
    assert all(fork["is_main"] for fork in told)


def test_no_two_draw_the_same_numbers(told: list[dict[str, Any]]) -> None:
    assert told[0]["random"] != told[1]["random"]


def test_what_is_shown_of_it_is_its_own(told: list[dict[str, Any]]) -> None:
    assert [fork["shown"] for fork in told] == [[[True, False]] * 2] * 2


def test_only_a_word_that_is_there_is_replaced_and_only_by_one_as_long() -> None:
    with pytest.raises(ValueError, match="not as long"):
        replace_shown("ONE", "THREE")
    with pytest.raises(OSError, match="not among"):
        replace_shown("NO_SUCH_WORD_IS_SHOWN", "NO_SUCH_WORD_IS_THERE")
