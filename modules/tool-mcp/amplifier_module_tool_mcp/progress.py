"""What a server says about the progress of a call, told to the session at a bearable rate."""

import time
from typing import Any

from amplifier_kit.tools.runs import announce

from .events import PROGRESS
from .redaction import Redactor

_MOST_PER_SECOND = 10


class ProgressReports:
    """Announces the progress of one call."""

    def __init__(self, coordinator: Any, redactor: Redactor, *, server: str, tool: str, tool_name: str) -> None:
        self._coordinator, self._redactor = coordinator, redactor
        self._subject = {"server": server, "tool": tool, "tool_name": tool_name}
        self._next_s = 0.0

    async def report(self, progress: float, total: float | None, message: str | None) -> None:
        """Announce a step, unless the last one was just now."""
        now = time.monotonic()
        if now < self._next_s:
            return
        self._next_s = now + 1 / _MOST_PER_SECOND
        said = None if message is None else self._redactor.text(message)
        payload = {**self._subject, "progress": progress, "total": total, "message": said}
        await announce(self._coordinator, PROGRESS, payload)
