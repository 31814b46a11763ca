"""What a worker does from its first request to the end of its connection."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from amplifier_core.packages import PACKAGE_PREFIX
from amplifier_system.tasks import Supervisor, cancelled

from .guard import Guard
from .json_rpc import Peer
from .outbox import Outbox
from .worker_log import begin_log
from .worker_methods import WorkerMethods


async def serve(connection: socket.socket, guard: Guard) -> None:
    """Answer until the daemon asks to stop; without a daemon nothing more is done, not even the end of a turn."""
    begin_log()
    is_over = asyncio.Event()
    methods = WorkerMethods(at_stop=is_over.set)

    def lost() -> None:
        if not is_over.is_set():
            guard.end()

    peer = await Peer.connect(connection, methods.table(), at_end=lost)
    outbox = Outbox(peer)
    methods.begin(outbox)
    heartbeat = Heartbeat(outbox.put)
    start = Supervisor().start
    beside = [start("heartbeat", heartbeat.run), start("priority", leave_cores_to_daemon)]
    try:
        await is_over.wait()
    finally:
        await cancelled(*beside)
        peer.close()


# A worker's pulse: it shows that the event loop runs, how late it is, and how much memory the process has.
#
# A thread watches the pulse: a module that keeps the loop for longer than a second is logged with its name.


logger = logging.getLogger(__name__)

INTERVAL_S = 0.5

_LONG_S = 1.0

_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Heartbeat:
    """Tells `heartbeat {lag_ms, rss_bytes}` for as long as it runs."""

    def __init__(self, tell: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._tell = tell
        self._beat_at = time.monotonic()

    async def run(self) -> None:
        threading.Thread(target=self._watch, args=(threading.get_ident(),), name="pulse", daemon=True).start()
        while True:
            begun = self._beat_at = time.monotonic()
            await asyncio.sleep(INTERVAL_S)
            lag_s = max(0.0, time.monotonic() - begun - INTERVAL_S)
            self._tell("heartbeat", {"lag_ms": round(lag_s * 1000, 1), "rss_bytes": resident_bytes()})

    def _watch(self, loop_thread: int) -> None:
        """Name what keeps the event loop, once for each time."""
        named_at = 0.0
        while True:
            time.sleep(INTERVAL_S)
            beat_at = self._beat_at
            if time.monotonic() - beat_at > INTERVAL_S + _LONG_S and beat_at != named_at:
                named_at = beat_at
                logger.warning(
                    "%s has kept the event loop for more than %g s",
                    running_module(loop_thread) or "our own code",
                    _LONG_S,
                )


def running_module(thread: int) -> str | None:
    """Return the package of the module that a thread runs code of, the innermost one, None when there is none."""
    frame = sys._current_frames().get(thread)
    while frame is not None:
        name = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if name.startswith(PACKAGE_PREFIX):
            return name
        frame = frame.f_back
    return None


def resident_bytes() -> int:
    """Return how much memory this process has at this moment; where that is not known, how much it had at most."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


# How workers share busy cores with their daemon: it gets what it needs first, since every client waits for it.
#
# What tools start inherits this, so that a build an agent runs does not slow down the people who watch it.


NICENESS = 3
"""On a busy core a worker gets half of what a process of ordinary priority gets."""

_AUTOGROUP = Path("/proc/self/autogroup")
_AGAIN_S = 0.25


async def leave_cores_to_daemon() -> None:
    """Lower this process's priority, and on Linux that of its session, among which cores may be shared out first."""
    os.nice(NICENESS)
    while True:
        if _lower_session():
            return
        await asyncio.sleep(_AGAIN_S)


def _lower_session() -> bool:
    """Lower the priority of this session; False when the kernel, which lets ten a second do this, wants us to wait."""
    try:
        _AUTOGROUP.write_text(str(NICENESS))
    except BlockingIOError:
        return False
    except OSError:  # it does not group processes by session
        return True
    return True
