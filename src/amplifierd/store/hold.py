"""The right to write into a session, and the process that has it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from amplifier_system.process_table import DEAD_STATES, stat_of
from amplifierd.exceptions import HoldLostError, SessionHeldError


@dataclass(frozen=True)
class Holder:
    """The process that holds a session. `started` tells a process from a later one with the same id.

    `lock` names the file that it keeps locked while it lives, in a home of files.
    """

    pid: int
    started: float
    boot_id: str
    host: str
    kind: str
    lock: str | None = field(default=None, compare=False)

    @classmethod
    def of_this_process(cls, kind: str = "library") -> Holder:
        pid = os.getpid()
        return cls(pid=pid, started=_own_start(pid), boot_id=boot_id(), host=socket.gethostname(), kind=kind)

    def is_this_process(self) -> bool:
        own = Holder.of_this_process(self.kind)
        return (self.pid, self.started, self.boot_id, self.host) == (own.pid, own.started, own.boot_id, own.host)

    def is_alive(self) -> bool:
        """True if the process may still be there, by its id; of one that cannot be seen from here it is assumed."""
        if self.host != socket.gethostname():
            return True
        if self.boot_id != boot_id():
            return same_boot(self.boot_id, boot_id())
        return find_start(self.pid) == self.started

    def facts(self) -> dict[str, Any]:
        """Return what tells it from every other process, under names that every version knows."""
        return {name: getattr(self, name) for name in ("pid", "started", "boot_id", "host", "kind")}

    def __str__(self) -> str:
        return f"process {self.pid} ({self.kind}) on {self.host}"


@dataclass(frozen=True)
class Hold:
    """The right to write into one session.

    In a store that machines share it belongs to the member of that id, which others reach at `address`. In a home of
    files, `member_id` is the incarnation of the daemon under which it was taken, if there was one.
    """

    session_id: str
    holder: Holder
    epoch: int
    since: str
    member_id: str | None = None
    address: str | None = None

    @cached_property
    def fence(self) -> bytes:
        """What the session's gate says for as long as this hold is the valid one."""
        return fence(self.epoch, self.since)

    def to_dict(self) -> dict[str, Any]:
        """Return what `hold.json` says; older versions read the first three of it."""
        first = {"holder": self.holder.facts(), "epoch": self.epoch, "since": self.since}
        return {**first, "lock": self.holder.lock, "incarnation": self.member_id}

    @classmethod
    def of_dict(cls, session_id: str, value: Mapping[str, Any]) -> Hold:
        """Return the hold that `hold.json` tells of.

        Raises:
            KeyError, TypeError: it tells of none.
        """
        lock = value["holder"].get("lock") or value.get("lock")
        holder = Holder(**{**value["holder"], "lock": lock})
        return cls(session_id, holder, value["epoch"], value["since"], member_id=value.get("incarnation"))


def held(hold: Hold) -> SessionHeldError:
    """Return the error for a session that another process has."""
    reached = f", reached at {hold.address}," if hold.address else ""
    return SessionHeldError(
        f"session {hold.session_id!r} is held by {hold.holder}{reached} since {hold.since}",
        holder=hold.holder,
        address=hold.address,
        hint=f"end that process, or take the session from it: amplifier session take-over {hold.session_id}",
    )


def lost(hold: Hold) -> HoldLostError:
    """Return the error for a write under a hold that is not the valid one."""
    return HoldLostError(
        f"session {hold.session_id!r} is no longer held under epoch {hold.epoch}: nothing was written",
        hint="acquire it again and read its current state",
    )


FENCE_BYTES = 64
FREE = "free"
DELETED = "deleted"


def fence(epoch: int, word: str) -> bytes:
    """Return the line of a gate: an epoch, and since when it holds or why it has no holder."""
    return f"{epoch} {word}".ljust(FENCE_BYTES - 1).encode() + b"\n"


def fence_epoch(line: bytes) -> int:
    """Return the epoch that a gate names, 0 when it names none yet."""
    number = line.split(b" ", 1)[0]
    return int(number) if number.isdigit() else 0


@cache
def _own_start(pid: int) -> float:
    started = find_start(pid)
    if started is None:
        raise RuntimeError(f"the start of this process ({pid}) cannot be determined")
    return started


# Which process is which: when it started, in which run of the machine, and whether it is still there.


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
    """True if two boot ids name one run of the machine, whichever processes each can see."""
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
