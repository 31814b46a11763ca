"""How workers share busy cores with their daemon: it gets what it needs first, since every client waits for it.

What tools start inherits this, so that a build an agent runs does not slow down the people who watch it.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

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
