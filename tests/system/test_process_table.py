"""What is read of a process that another one may be changing."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from amplifier_system.process_table import environment_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[int]:
    """A process that starts the same program again and again."""
    (tmp_path / "again").write_text('exec sh "$0"')
    with subprocess.Popen(["sh", tmp_path / "again"], env={"PATH": os.environ["PATH"], "MARK": "1"}) as process:
        yield process.pid
        process.kill()


def test_the_environment_is_seen_while_a_program_is_started(restless: int) -> None:
    seen = {b"MARK=1" in environment_of(restless) for _ in range(2_000)}

    assert seen == {True}


def test_who_was_given_no_environment_is_not_waited_for() -> None:
    with subprocess.Popen(["sleep", "60"], env={}) as bare:
        assert environment_of(bare.pid) == b""
        bare.kill()
