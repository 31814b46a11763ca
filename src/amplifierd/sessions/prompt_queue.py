"""Prompts that wait while a turn runs, first come, first served."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from amplifierd.exceptions import (
    ExecutionInProgressError,
    NothingToSteerError,
    QueueFullError,
    SessionError,
)


@dataclass(eq=False)
class _Waiting:
    prompt: str
    turn: asyncio.Future[None]


class PromptQueue:
    """Gives one prompt at a time its turn."""

    def __init__(self, longest: int, announce: Callable[[int], Awaitable[None]]) -> None:
        self._longest, self._announce = longest, announce
        self._waiting: deque[_Waiting] = deque()
        self._is_taken = False

    def prompts(self) -> list[str]:
        """Return the prompts that wait, the next one first."""
        return [waiting.prompt for waiting in self._waiting]

    def remove(self, position: int) -> str:
        """Take a waiting prompt out; the first one has position 1.

        Raises:
            NothingToSteerError: none waits there.
        """
        if not 1 <= position <= len(self._waiting):
            raise NothingToSteerError(f"no prompt waits at position {position}; {len(self._waiting)} wait")
        waiting = self._waiting[position - 1]
        self._waiting.remove(waiting)
        waiting.turn.cancel()
        return waiting.prompt

    def close(self, reason: SessionError) -> None:
        """Turn everyone away who waits."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.turn.done():
                waiting.turn.set_exception(reason)

    @asynccontextmanager
    async def turn(self, prompt: str, *, may_wait: bool, session_id: str) -> AsyncIterator[None]:
        """Hold the turn while the block runs.

        Raises:
            ExecutionInProgressError: a turn is running and the prompt is not to wait.
            QueueFullError: too many wait already.
            SessionStateError: the session was closed meanwhile.
            asyncio.CancelledError: it was taken out of the queue.
        """
        if self._is_taken:
            await self._wait(prompt, may_wait=may_wait, session_id=session_id)
        self._is_taken = True
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, prompt: str, *, may_wait: bool, session_id: str) -> None:
        if not may_wait:
            raise ExecutionInProgressError(
                f"session {session_id} is executing a turn", hint="wait for it, queue the prompt, or cancel it"
            )
        if len(self._waiting) >= self._longest:
            raise QueueFullError(
                f"{self._longest} prompts wait in session {session_id} already", hint="raise sessions.max_queue"
            )
        waiting = _Waiting(prompt, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        try:
            await self._announce(len(self._waiting))
            await waiting.turn
        except BaseException:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif _is_given(waiting.turn):  # it was its turn at this very moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next prompt; it stays taken meanwhile."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.turn.done():
                waiting.turn.set_result(None)
                return
        self._is_taken = False


def _is_given(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None
