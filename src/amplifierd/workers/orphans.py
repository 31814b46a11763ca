"""Workers that outlived their daemon: one that could not notice its end still holds sessions, and is ended."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from amplifier_system.process_table import stat_of
from amplifier_system.processes import is_marker, kill_tree
from amplifierd.paths import Paths
from amplifierd.store.hold import Holder
from amplifierd.store.process_locks import ProcessLocks

logger = logging.getLogger(__name__)

WORKER = "worker"
"""What workers call themselves as holders of sessions."""

_PROC = Path("/proc")


def end_orphan(holder: Any) -> bool:
    """End the process that holds a session if it is a worker whose daemon is gone; say whether it is not there now."""
    if not isinstance(holder, Holder) or holder.kind != WORKER:
        return False
    if holder.is_alive():
        marker = _find_orphan_marker(holder.pid)
        if marker is None:
            return False
        logger.warning("worker %d, which outlived its daemon, is killed", holder.pid)
        kill_tree(holder.pid, marker)
    return not holder.is_alive()


def end_old_workers(paths: Paths) -> None:
    """End the workers of daemons that served this home before, as far as they can be seen."""
    for pid in ProcessLocks(paths.run).owners():
        if (marker := _find_orphan_marker(pid)) is not None:
            logger.warning("worker %d, which outlived its daemon, is killed", pid)
            kill_tree(pid, marker)


def _find_orphan_marker(pid: int) -> str | None:
    """Return the marker of a worker whose parent is not the daemon that started it."""
    try:
        _, daemon, marker, _ = (_PROC / str(pid) / "cmdline").read_bytes().split(b"\0")[-4:]
        parent = stat_of(pid)[1]
    except (OSError, ValueError, IndexError):
        return None
    is_orphan = daemon.isdigit() and daemon != parent and is_marker(marker.decode())
    return marker.decode() if is_orphan else None
