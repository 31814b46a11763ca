"""Workers that outlived their daemon: one that could not notice its end still holds sessions, and is ended."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from amplifierd.session_store.hold import Holder

WORKER = "worker"
"""What workers call themselves as holders of sessions."""

_PROC = Path("/proc")
_PATIENCE_S = 5.0


def end_orphan(holder: Any) -> bool:
    """End the process that holds a session if it is a worker whose daemon is gone; say whether it is."""
    if not isinstance(holder, Holder) or holder.kind != WORKER:
        return False
    if holder.is_alive() and not _is_orphan(holder.pid):
        return False
    with suppress(ProcessLookupError, PermissionError):
        if holder.is_alive():
            os.kill(holder.pid, signal.SIGKILL)
    limit = time.monotonic() + _PATIENCE_S
    while holder.is_alive() and time.monotonic() < limit:
        time.sleep(0.01)
    return not holder.is_alive()


def _is_orphan(pid: int) -> bool:
    """Say whether the parent of a worker is not the daemon that it was started by."""
    try:
        daemon = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[-3]
        parent = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1]
    except (OSError, IndexError):
        return False
    return daemon.isdigit() and daemon != parent
