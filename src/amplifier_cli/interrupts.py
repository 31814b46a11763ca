"""Ctrl-C while a turn runs: once stops it when its tools are done, twice at once, a third time ends the process."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Any, Protocol, Self

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import start_task


class Cancellable(Protocol):
    """What has a turn that can be stopped."""

    async def cancel(self, *, immediate: bool = False) -> dict[str, Any]: ...


class Interrupts:
    """Handles Ctrl-C, and the request to end, as long as a block runs. The session stays whole in any case."""

    def __init__(self, session: Cancellable, tell: Callable[[str], None]) -> None:
        self._session, self._tell = session, tell
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.count = 0

    def __enter__(self) -> Self:
        self._loop.add_signal_handler(signal.SIGINT, self.hit)
        self._loop.add_signal_handler(signal.SIGTERM, self._end)
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._loop.remove_signal_handler(signal.SIGINT)
        self._loop.remove_signal_handler(signal.SIGTERM)

    def hit(self) -> None:
        """Do what the next Ctrl-C does."""
        self.count += 1
        if self.count == 1:
            self._tell("stopping once the running tools are done; Ctrl-C again stops at once")
            self._cancel(immediate=False)
        elif self.count == 2:
            self._tell("stopping now")
            self._cancel(immediate=True)
        else:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            signal.raise_signal(signal.SIGINT)

    def _end(self) -> None:
        self.count = max(self.count, 2)
        self._cancel(immediate=True)

    def _cancel(self, *, immediate: bool) -> None:
        task = start_task(self._stop(immediate=immediate))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _stop(self, *, immediate: bool) -> None:
        try:
            await self._session.cancel(immediate=immediate)
        except AmplifierError as error:
            self._tell(f"it cannot be stopped: {error.message}")
