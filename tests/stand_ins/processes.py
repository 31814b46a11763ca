"""The processes that a test starts, found by a marker which all of them inherit."""

import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from amplifier_system.process_table import DEAD_STATES, all_pids, environment_of, stat_of

_PATIENCE_S = 30.0
_ENDING_S = 3.0

_starts = 0


def _count_starts(event: str, args: tuple[object, ...]) -> None:
    global _starts
    _starts += event == "subprocess.Popen"


sys.addaudithook(_count_starts)  # where nothing was started nothing needs to be looked for


class Started:
    """What was started since, whoever started it and wherever it went."""

    def __init__(self, marker: str) -> None:
        self._marker = f"{marker}=1".encode()

    def pids(self) -> list[int]:
        """Return the pids of all that is alive; the dead whom nobody reaped do not count."""
        return [pid for pid in all_pids() if self._is_ours(pid)]

    def wait_for(self, count: int) -> list[int]:
        """Wait until so many are alive."""
        deadline = time.monotonic() + _PATIENCE_S
        while len(pids := self.pids()) != count:
            assert time.monotonic() < deadline, f"{len(pids)} processes are alive instead of {count}: {_shown(pids)}"
            time.sleep(0.01)
        return pids

    def end(self) -> None:
        """End what a test left running on purpose."""
        for pid in self.pids():
            with suppress(ProcessLookupError):  # it ended by itself meanwhile
                os.kill(pid, signal.SIGKILL)
        self.wait_for(0)

    def _is_ours(self, pid: int) -> bool:
        try:
            return self._marker in environment_of(pid) and stat_of(pid)[0] not in DEAD_STATES
        except (OSError, IndexError):
            return False


@contextmanager
def leaving_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Started]:
    """Fail when a process that was started meanwhile is still alive at the end, or a moment later."""
    marker = f"AMPLIFIER_CHILD_{uuid.uuid4().hex}"
    monkeypatch.setenv(marker, "1")
    started, starts_before = Started(marker), _starts
    yield started
    if _starts == starts_before:
        return
    deadline = time.monotonic() + _ENDING_S
    while (left := started.pids()) and time.monotonic() < deadline:
        time.sleep(0.01)
    if left:
        started.end()
        pytest.fail(f"{len(left)} processes were left running")


def _shown(pids: list[int]) -> list[str]:
    """Return the command lines of processes, those that are still there."""
    shown = []
    for pid in pids:
        with suppress(OSError):
            shown.append(Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return shown
