"""Which process is which: when it started, in which run of the machine, and whether it is still there."""

from __future__ import annotations

import os
import subprocess
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from amplifier_system.process_table import DEAD_STATES, stat_of

_PROC = Path("/proc")
_START_FIELD = 19  # of /proc/<pid>/stat, counted from the state, which follows the name


def find_start(pid: int) -> float | None:
    """Return when a process started, None when it is gone.

    The value is compared, never shown: on Linux it counts from the start of the machine, so no change of the clock
    moves it.
    """
    return _start_from_proc(pid) if _has_proc() else find_start_from_ps(pid)


@cache
def boot_id() -> str:
    """Return what names this run of the machine and, on Linux, the set of processes that this one can see."""
    if _has_proc():
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    return _output("sysctl", "-n", "kern.bootsessionuuid").strip()


def same_boot(one: str, other: str) -> bool:
    """Say whether two boot ids name one run of the machine, whichever processes each can see."""
    return one.partition("/")[0] == other.partition("/")[0]


@cache
def _has_proc() -> bool:
    return (_PROC / "self/stat").exists()


def _start_from_proc(pid: int) -> float | None:
    try:
        fields = stat_of(pid)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in DEAD_STATES else int(fields[_START_FIELD]) / os.sysconf("SC_CLK_TCK")


def find_start_from_ps(pid: int) -> float | None:
    """Return the same where there is no `/proc`, to the second, as seconds since 1970."""
    state, _, started = _output("ps", "-o", "state=,lstart=", "-p", str(pid)).strip().partition(" ")
    if not started or state.startswith("Z"):
        return None
    return datetime.strptime(started.strip(), "%a %b %d %H:%M:%S %Y").replace(tzinfo=UTC).timestamp()


def _output(*command: str) -> str:
    environment = {**os.environ, "LC_ALL": "C", "TZ": "UTC"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=5).stdout
