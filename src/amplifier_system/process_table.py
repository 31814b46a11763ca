"""What `/proc` shows of the processes of this machine.

Reading about a process raises `OSError` once it is gone, or where it belongs to another user.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

_PROC = Path("/proc")

DEAD_STATES = (b"Z", b"X")

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


# Which processes belong to the tree of a child, and signals to all of them.
#
# `MarkedMembers` finds the child's process group and, through `/proc`, whatever carries its marker in the
# environment. `GroupMembers` knows the group only, for systems without `/proc`. `MEMBERS` is the better one of this
# system.


_CHASE_LIMIT_S = 0.2
_QUIET_S = 0.005
_LOOK_S = 0.0002


class Members(Protocol):
    """The living processes of a tree."""

    def find(self) -> list[int]:
        """Return their pids."""
        ...

    def signal(self, number: int) -> list[int]:
        """Signal each process in the moment in which it is found, and return their pids."""
        ...

    def signal_group(self, number: int) -> None:
        """Signal the child's process group, all of it in one step."""
        ...


class MarkedMembers:
    """The processes of the group or with the marker, as `/proc` shows them."""

    def __init__(self, pid: int, marker: str, is_reaped: Callable[[], bool]) -> None:
        self._group = str(pid).encode()
        self._leader = _PROC / str(pid)
        self._start = _start_of_tree(pid)
        self._marker = f"{marker}=".encode()
        self._is_reaped = is_reaped

    def find(self) -> list[int]:
        return [pid for pid in all_pids() if self._is_member(pid)]

    def signal(self, number: int) -> list[int]:
        newest = newest_pid()
        signalled = [pid for pid in all_pids() if self._is_member(pid) and self._signal(pid, number)]
        return signalled + self._signal_newborn(newest, number)

    def _signal_newborn(self, newest: int, number: int) -> list[int]:
        """Signal what has been started since `newest`, until a while has passed without a member among it.

        A process that forks and exits is gone before a scan of all others gets to it; its child has to be met here. On
        a busy machine that while can pass before anything is looked at. So the last look must have found that nothing
        at all was started since the one before: a child that was missed would have been.
        """
        signalled: list[int] = []
        limit = time.monotonic() + _CHASE_LIMIT_S
        quiet_end = time.monotonic() + _QUIET_S
        while True:
            before, newest = newest, newest_pid()
            for pid in range(before + 1, newest + 1):
                if self._is_member(pid) and self._signal(pid, number):
                    signalled.append(pid)
                    quiet_end = time.monotonic() + _QUIET_S
            now = time.monotonic()
            if (now >= quiet_end and newest == before) or now >= limit:
                return signalled
            if newest == before:
                time.sleep(_LOOK_S)

    def signal_group(self, number: int) -> None:
        if self._owns_group():
            with contextlib.suppress(ProcessLookupError, PermissionError):  # none is left, or none of ours
                os.killpg(int(self._group), number)

    def _signal(self, pid: int, number: int) -> bool:
        """Signal the process if it is still a member; a descriptor stands for one process, a pid for many in turn."""
        descriptor = _open_process(pid)
        try:
            if not self._is_member(pid):
                return False
            if descriptor is None:
                os.kill(pid, number)
            else:
                signal.pidfd_send_signal(descriptor, number)
        except ProcessLookupError:
            return False
        except PermissionError:  # it runs as another user, and is reported as left
            return True
        finally:
            if descriptor is not None:
                os.close(descriptor)
        return True

    def _is_member(self, pid: int) -> bool:
        try:
            fields = stat_of(pid)
            state, _, group, session = fields[:4]
            if state in DEAD_STATES:
                return False
            if group == session == self._group and self._owns_group():
                return True
            if int(fields[START]) < self._start:
                return False
            environment = environment_of(pid)
        except (OSError, ValueError):
            return False
        return environment.startswith(self._marker) or b"\0" + self._marker in environment

    def _owns_group(self) -> bool:
        """True if the group's number is still this tree's: once the leader is reaped a new process may have it."""
        return not self._is_reaped() or not self._leader.exists()


def _start_of_tree(pid: int) -> int:
    """Return before when nothing of the tree of a process was forked."""
    try:
        return start_of(pid)
    except OSError:  # it is gone, and what it left may be of any age
        return 0


class GroupMembers:
    """The process group, where no more can be known; its members are not told apart."""

    def __init__(self, pid: int, marker: str, is_reaped: Callable[[], bool]) -> None:
        self._pid = pid
        self._is_reaped = is_reaped

    def find(self) -> list[int]:
        return self.signal(0)

    def signal(self, number: int) -> list[int]:
        try:
            if self._is_reaped() and is_running(self._pid):
                return []  # the number belongs to another process by now
            os.killpg(self._pid, number)
        except (ProcessLookupError, PermissionError):  # none is left, or only dead ones
            return []
        return [self._pid]

    def signal_group(self, number: int) -> None:
        self.signal(number)


# Makes the members of a tree from the child's pid, the marker, and what tells whether the child is reaped.
MembersOf = Callable[[int, str, Callable[[], bool]], Members]

MEMBERS: MembersOf = MarkedMembers if sys.platform == "linux" else GroupMembers


def _open_process(pid: int) -> int | None:
    """Return a descriptor of the process, None when it is gone or the system has no such descriptors."""
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def is_running(pid: int) -> bool:
    """True if a process has this number."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as another user
        pass
    return True
