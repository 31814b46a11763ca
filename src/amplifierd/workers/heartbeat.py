"""A worker's pulse: it shows that the event loop runs, how late it is, and how much memory the process has."""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

INTERVAL_S = 0.5

_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Heartbeat:
    """Tells `heartbeat {lag_ms, rss_bytes}` for as long as it runs."""

    def __init__(self, tell: Callable[[str, Mapping[str, Any]], None]) -> None:
        self._tell = tell

    async def run(self) -> None:
        while True:
            begun = time.monotonic()
            await asyncio.sleep(INTERVAL_S)
            lag_s = max(0.0, time.monotonic() - begun - INTERVAL_S)
            self._tell("heartbeat", {"lag_ms": round(lag_s * 1000, 1), "rss_bytes": resident_bytes()})


def resident_bytes() -> int:
    """Return how much memory this process has at this moment; where that is not known, how much it had at most."""
    try:
        return int(_STATM.read_bytes().split()[1]) * _PAGE
    except OSError:
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
