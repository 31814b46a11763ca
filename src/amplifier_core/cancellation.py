"""How a running turn is asked to stop: at the next good moment (graceful) or now (immediate)."""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum

from .boundary import TaskBoundary, settle

logger = logging.getLogger(__name__)


class CancellationState(Enum):
    NONE = "none"
    GRACEFUL = "graceful"
    IMMEDIATE = "immediate"


class CancellationToken:
    """One session's wish to stop, the tools it would interrupt, and the tokens of its child sessions.

    Requests only set state and pass it on to the children; the code that runs the turn looks at the token, emits events
    and calls `trigger_callbacks`. Requests may come from signal handlers and other threads: every change of state is
    a single atomic dict operation, so there is no lock that an interrupted thread could hold.
    """

    def __init__(self) -> None:
        self._requested: dict[str, object] = {}
        self._running_tools: dict[str, str] = {}
        self._children: dict[CancellationToken, None] = {}
        self._callbacks: list[Callable[[], object]] = []

    @property
    def state(self) -> str:
        """The value of a `CancellationState`, as plain text."""
        requested = self._requested
        if not requested:
            return CancellationState.NONE.value
        immediate = CancellationState.IMMEDIATE.value
        return immediate if immediate in requested else CancellationState.GRACEFUL.value

    @property
    def is_cancelled(self) -> bool:
        return bool(self._requested)

    @property
    def is_graceful(self) -> bool:
        return self.state == CancellationState.GRACEFUL.value

    @property
    def is_immediate(self) -> bool:
        return bool(self._requested) and CancellationState.IMMEDIATE.value in self._requested

    def request_graceful(self) -> bool:
        """Ask to stop after the current step; False if a request was there already."""
        if self.is_cancelled or not self._claim(CancellationState.GRACEFUL):
            return False
        for child in tuple(self._children):
            child.request_graceful()
        return True

    def request_immediate(self) -> bool:
        """Ask to stop now; False if that was asked already."""
        if not self._claim(CancellationState.IMMEDIATE):
            return False
        for child in tuple(self._children):
            child.request_immediate()
        return True

    def request_cancellation(self) -> None:
        """Ask to stop after the current step."""
        self.request_graceful()

    def reset(self) -> None:
        """Forget requests and running tools, so that the next turn can run; children and callbacks stay."""
        self._requested = {}
        self._running_tools.clear()

    def register_tool_start(self, tool_call_id: str, tool_name: str) -> None:
        self._running_tools[tool_call_id] = tool_name

    def register_tool_complete(self, tool_call_id: str) -> None:
        self._running_tools.pop(tool_call_id, None)

    @property
    def running_tools(self) -> set[str]:
        """The ids of the tool calls under way."""
        return set(self._running_tools)

    @property
    def running_calls(self) -> dict[str, str]:
        """The tool calls under way: their tools by their ids."""
        return dict(self._running_tools)

    @property
    def running_tool_names(self) -> list[str]:
        return list(self._running_tools.values())

    def register_child(self, child: "CancellationToken") -> None:
        """Pass the present and every later request on to `child`."""
        self._children[child] = None
        if self.is_immediate:
            child.request_immediate()
        elif self.is_cancelled:
            child.request_graceful()

    def unregister_child(self, child: "CancellationToken") -> None:
        self._children.pop(child, None)

    def on_cancel(self, callback: Callable[[], object]) -> None:
        """Have `trigger_callbacks` call `callback`, which may be a coroutine function."""
        self._callbacks.append(callback)

    async def trigger_callbacks(self) -> None:
        """Call every callback in order.

        One that fails is logged and does not stop the others. What must not be swallowed (the end of the process,
        the cancellation of the task that waits here) is raised after the last callback.
        """
        fatal: BaseException | None = None
        for callback in tuple(self._callbacks):
            try:
                with TaskBoundary(logger, "cancel callback %r failed: %s", callback, level=logging.ERROR):
                    await settle(callback())
            except (asyncio.CancelledError, KeyboardInterrupt, SystemExit) as error:
                fatal = fatal or error
        if fatal is not None:
            raise fatal

    def _claim(self, state: CancellationState) -> bool:
        """Set `state`; True for the one caller that did, however many try at once."""
        claim = object()
        return self._requested.setdefault(state.value, claim) is claim
