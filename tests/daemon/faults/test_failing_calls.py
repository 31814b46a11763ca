"""Calls to the disk that fail, are cut short, or are the last of their process: some of what `make soak` sweeps."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import io_faults
import pytest

SOAKS = Path(__file__).parents[2] / "soak"


def test_what_was_shown_is_stored_and_the_next_turn_works_wherever_a_call_fails(tmp_path: Path) -> None:
    if io_faults.environment(tmp_path) is None:
        pytest.skip("there is no C compiler, or no /proc")

    command = [sys.executable, SOAKS, "io_sweep", "--points", "2"]
    swept = subprocess.run(command, capture_output=True, text=True, timeout=300)

    assert swept.returncode == 0, swept.stderr[-6000:]
    assert [line.split(":")[0] for line in swept.stdout.splitlines()] == ["turn", "compile", "export", "takeover"]
