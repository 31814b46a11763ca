"""What bubblewrap reports about a program, and the processes in the namespace it made for it."""

import contextlib
import json
import logging
import os
import select
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

from amplifier_system.process_members import GroupMembers
from amplifier_system.process_table import all_pids

from .enclosure import Reports

logger = logging.getLogger(__name__)

_PROC = Path("/proc")
_END_LIMIT_MS = 5_000
_SIGNALLED = 128


class Namespace:
    """The namespace of one program, as `--json-status-fd` describes it line by line.

    Its first process is bubblewrap's own and cannot be asked to stop; when that is killed the kernel kills all others,
    and it is gone only when they are.
    """

    def __init__(self, reports: Reports) -> None:
        self.exit_code: int | None = None
        self._first: int | None = None
        self._first_descriptor: int | None = None
        self._descriptor_use = threading.Lock()  # once closed, its number can stand for another sandbox
        self._link = ""
        self._watch = reports.watch
        self._reader = threading.Thread(target=self._read, args=(reports,), name="sandbox-status", daemon=True)
        self._reader.start()

    @property
    def returncode(self) -> int | None:
        """How the program ended, negative for a signal; None when it did not run or was taken down from outside."""
        code = self.exit_code
        if code is None or code <= _SIGNALLED:
            return code
        # A shell and bubblewrap report a signal alike, by a number that hardly any program returns on its own.
        number = code - _SIGNALLED
        return -number if number in signal.valid_signals() else code

    def find(self) -> list[int]:
        """Return the pids of the program and of what it started."""
        if not self._link:
            return []
        return [pid for pid in all_pids() if pid != self._first and _link_of(pid) == self._link]

    def kill(self) -> None:
        """Kill everything in the namespace, at once."""
        with self._descriptor_use, contextlib.suppress(ProcessLookupError):
            if self._first_descriptor is not None:
                signal.pidfd_send_signal(self._first_descriptor, signal.SIGKILL)

    def wait_for_end(self) -> None:
        """Wait until nothing is left in the namespace."""
        self._reader.join()
        if self.exit_code is None:  # bubblewrap was taken down, and maybe nothing but that
            self._watch.kill()
        else:
            self._watch.release()
        if self._first_descriptor is not None:
            self._wait_for_first(self._first_descriptor)

    def _wait_for_first(self, descriptor: int) -> None:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        if not waiting.poll(_END_LIMIT_MS):
            logger.warning("the sandbox of process %s does not come to its end", self._first)
        with self._descriptor_use:
            os.close(descriptor)
            self._first_descriptor = None

    def _read(self, reports: Reports) -> None:
        with os.fdopen(reports.status, "rb") as lines:
            with os.fdopen(reports.ready, "rb", 0) as ready, os.fdopen(reports.go, "wb", 0) as go:
                line = lines.readline()
                self._take(line)
                if line and _is_first(ready, lines) and ready.read(1):
                    with contextlib.suppress(BrokenPipeError):
                        go.write(b"\n")
            for line in lines:
                self._take(line)

    def _take(self, line: bytes) -> None:
        try:
            told: dict[str, int] = json.loads(line)
        except ValueError:
            return
        self.exit_code = told.get("exit-code", self.exit_code)
        if "child-pid" in told and "pid-namespace" in told:
            self._first, self._link = told["child-pid"], f"pid:[{told['pid-namespace']}]"
            with contextlib.suppress(OSError):  # it is over already
                descriptor = os.pidfd_open(self._first)
                if _link_of(self._first) in (self._link, ""):
                    self._first_descriptor = descriptor
                else:  # the number belongs to another process by now
                    os.close(descriptor)


class NamespaceMembers:
    """A program in a namespace, with bubblewrap around it: asked to stop is the program, killed is all of it."""

    def __init__(self, namespace: Namespace, pid: int, marker: str, is_reaped: Callable[[], bool]) -> None:
        self._namespace = namespace
        self._outside = GroupMembers(pid, marker, is_reaped)
        self._is_reaped = is_reaped

    def find(self) -> list[int]:
        return self._namespace.find()

    def signal(self, number: int) -> list[int]:
        if number == signal.SIGKILL:
            self._namespace.kill()
            left = self._outside.signal(number)
            return [] if self._is_reaped() else left  # the dead that are not reaped yet are in the group, too
        return [pid for pid in self.find() if _is_signalled(pid, number)]

    def signal_group(self, number: int) -> None:
        self.signal(number)


def _is_first(pipe: IO[bytes], other: IO[bytes]) -> bool:
    """Wait until something comes from one of two pipes, or nothing will, and say whether that is the first."""
    waiting = select.poll()
    for file in (pipe, other):
        waiting.register(file, select.POLLIN)
    return pipe.fileno() in dict(waiting.poll())


def _is_signalled(pid: int, number: int) -> bool:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
        return True
    return False


def _link_of(pid: int) -> str:
    try:
        return str((_PROC / str(pid) / "ns/pid").readlink())
    except OSError:
        return ""
