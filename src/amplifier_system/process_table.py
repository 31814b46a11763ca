"""What `/proc` shows of the processes of this machine.

Reading about a process raises `OSError` once it is gone, or where it belongs to another user.
"""

import os
import time
from pathlib import Path

DEAD_STATES = (b"Z", b"X")

_PROC = Path("/proc")
START = 19  # among the fields that follow the name
_SIZE, _CODE_START, _ENVIRONMENT_START, _ENVIRONMENT_END = 20, 23, 47, 48
_EXECUTING_S = 0.0002
_PIECE = 1 << 16


def all_pids() -> list[int]:
    """Return the numbers of all processes."""
    with os.scandir(_PROC) as entries:
        return [int(entry.name) for entry in entries if entry.name.isdigit()]


def newest_pid() -> int:
    """Return the number that the latest process of all was given."""
    return int((_PROC / "loadavg").read_bytes().split()[-1])


def stat_of(pid: int) -> list[bytes]:
    """Return what follows the name in the status of a process: its state, its parent, its group, its session, …"""
    return _read(pid, "stat").rpartition(b")")[2].split()


def start_of(pid: int) -> int:
    """Return when a process was forked, in the kernel's ticks; starting another program does not change it."""
    return int(stat_of(pid)[START])


def environment_of(pid: int) -> bytes:
    """Return the environment that a process was executed with; the dead and the kernel's own threads have none.

    While a process is being executed, `/proc` shows an empty environment; it is waited for.
    """
    while not (environment := _read(pid, "environ")) and _is_to_have_one(pid):
        time.sleep(_EXECUTING_S)
    return environment


def _is_to_have_one(pid: int) -> bool:
    fields = stat_of(pid)
    is_executed = fields[_CODE_START] != b"0"  # which is set last
    was_given_none = is_executed and fields[_ENVIRONMENT_START] == fields[_ENVIRONMENT_END]
    return fields[0] not in DEAD_STATES and fields[_SIZE] != b"0" and not was_given_none


def _read(pid: int, name: str) -> bytes:
    """Return a file about a process; hundreds are read in a row, so not by way of `Path`."""
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = b""
        while more := os.read(descriptor, _PIECE):
            text += more
        return text
    finally:
        os.close(descriptor)
