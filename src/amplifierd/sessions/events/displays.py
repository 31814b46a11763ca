"""Where the messages of a session go: ready-made ones of the kernel's `DisplaySystem`."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from amplifier_core.boundary import Boundary, TaskBoundary, settle
from amplifier_system.tasks import start_task

__all__ = ["CallbackDisplay", "CollectedMessages", "DisplayMessage", "EventDisplay"]

DISPLAY_MESSAGE = "display:message"
DISPLAY_SHOWN = "display:shown"

Level = Literal["info", "warning", "error"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DisplayMessage:
    """A message for a person; `source` names who sent it."""

    message: str
    level: Level = "info"
    source: str = "hook"


class CollectedMessages:
    """Keeps every message in `messages`, the oldest first."""

    def __init__(self) -> None:
        self.messages: list[DisplayMessage] = []

    def show_message(self, message: str, level: Level, source: str = "hook") -> None:
        self.messages.append(DisplayMessage(message, level, source))


class CallbackDisplay:
    """Hands every message to a function; what it raises is logged."""

    def __init__(self, function: Callable[[DisplayMessage], None]) -> None:
        self._function = function

    def show_message(self, message: str, level: Level, source: str = "hook") -> None:
        with Boundary(logger, "a message of %s could not be shown: %s", source):
            self._function(DisplayMessage(message, level, source))


class EventDisplay:
    """Emits every message as `display:message`, in the order in which they were shown.

    `nesting_depth` says how deep in its tree the session is: 0 for the root. `emit` may return an awaitable; messages
    are then emitted one after the other on the running loop, and `drained` waits for the last.
    """

    def __init__(self, emit: Callable[[str, dict[str, Any]], Any], *, nesting_depth: int = 0) -> None:
        self._emit, self._nesting_depth = emit, nesting_depth
        self._last: asyncio.Task[None] | None = None

    def nested(self) -> EventDisplay:
        """Return the display of a session one level below."""
        return EventDisplay(self._emit, nesting_depth=self._nesting_depth + 1)

    def show_message(self, message: str, level: Level, source: str = "hook") -> None:
        data = {"message": message, "level": level, "source": source, "nesting_depth": self._nesting_depth}
        self._emit_next(DISPLAY_MESSAGE, data, source)

    def show(self, *, kind: str, data: dict[str, Any]) -> None:
        """Show something that has a form of its own, such as a to-do list."""
        self._emit_next(DISPLAY_SHOWN, {"kind": kind, "data": data, "nesting_depth": self._nesting_depth}, kind)

    def _emit_next(self, event: str, data: dict[str, Any], source: str) -> None:
        with Boundary(logger, "a message of %s could not be emitted: %s", source):
            if self._last is None or self._last.done():
                outcome = self._emit(event, data)
                if inspect.isawaitable(outcome):
                    self._last = start_task(_finished(outcome))
            else:
                self._last = start_task(self._emitted_after(self._last, event, data))

    async def drained(self) -> None:
        """Wait until every message is emitted."""
        if self._last is not None:
            await asyncio.wait({self._last})

    async def _emitted_after(self, earlier: asyncio.Task[None], event: str, data: dict[str, Any]) -> None:
        await asyncio.wait({earlier})
        with TaskBoundary(logger, "a message could not be emitted: %s"):
            await settle(self._emit(event, data))


async def _finished(outcome: Any) -> None:
    with TaskBoundary(logger, "a message could not be emitted: %s"):
        await settle(outcome)
