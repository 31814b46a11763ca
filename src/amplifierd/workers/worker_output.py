"""What a worker writes to stdout and stderr: its log, and whatever else its modules print, in the daemon's log."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Mapping
from typing import Any

from .worker_log import OURS

logger = logging.getLogger(__name__)

LINES_PER_S = 200
"""What a worker writes beyond this is counted, not kept: a module in a loop must not fill the daemon's log."""

_LONGEST = 16 * 1024
_BUFFER = 64 * 1024


class WorkerOutput(asyncio.Protocol):
    """Reads the output of one worker line by line, and logs it with the worker's id."""

    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._rest = b""
        self._second, self._lines, self._left_out = 0, 0, 0
        self._transport: asyncio.BaseTransport | None = None
        self._is_over = asyncio.Event()

    @classmethod
    async def connect(cls, descriptor: int, worker_id: str) -> WorkerOutput:
        """Read from the end of a pipe, which belongs to what is returned from then on."""
        pipe = os.fdopen(descriptor, "rb", buffering=0)
        try:
            _, output = await asyncio.get_running_loop().connect_read_pipe(lambda: cls(worker_id), pipe)
        except BaseException:
            pipe.close()
            raise
        return output

    async def close(self, patience_s: float = 0.5) -> None:
        """Log what is left of a worker that has ended, and let go of the pipe, even if others still have it open."""
        try:
            async with asyncio.timeout(patience_s):
                await self._is_over.wait()
        except TimeoutError:
            if self._transport is not None:
                self._transport.close()
                await self._is_over.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self._rest) > _BUFFER:
            self._take(self._rest)
            self._rest = b""

    def connection_lost(self, error: Exception | None) -> None:
        if self._rest:
            self._take(self._rest)
        self._tell_left_out()
        self._is_over.set()

    def _take(self, line: bytes) -> None:
        if int(time.monotonic()) != self._second:
            self._second, self._lines = int(time.monotonic()), 0
        self._lines += 1
        if self._lines > LINES_PER_S:
            self._left_out += 1
            if self._left_out == 1:
                asyncio.get_running_loop().call_later(1.0, self._tell_left_out)
        elif line.strip():
            self._log(line[:_LONGEST])

    def _tell_left_out(self) -> None:
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            self._pass_on(logging.WARNING, __name__, f"{left_out} lines of output were left out", {})

    def _log(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip()
        told = _record(text)
        if told is None:
            self._pass_on(logging.INFO, f"{OURS}.workers.output", text, {})
            return
        level = logging.getLevelNamesMapping().get(str(told.pop("level", "")), logging.WARNING)
        self._pass_on(level, str(told.pop("logger", OURS)), str(told.pop("message")), told)

    def _pass_on(self, level: int, name: str, message: str, about: Mapping[str, Any]) -> None:
        logging.getLogger(name).log(level, "%s", message, extra={"worker_id": self._worker_id, **_known(about)})


def _record(text: str) -> dict[str, Any] | None:
    """Return a line of a worker's log, None for anything else that was printed."""
    if not text.startswith('{"level": "'):
        return None
    try:
        told = json.loads(text)
    except ValueError:
        return None
    return told if isinstance(told, dict) and "message" in told else None


def _known(about: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(about[name]) for name in ("session_id", "correlation_id") if about.get(name)}
