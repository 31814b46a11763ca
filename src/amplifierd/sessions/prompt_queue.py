"""Prompts that wait while a turn runs, first come, first served."""

from __future__ import annotations

import asyncio
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
class Place:
    """What a prompt has got: the turn, or a place in the queue for it; without one it is for work between two turns."""

    prompt: str | None
    turn: asyncio.Future[None]


class PromptQueue:
    """Gives one prompt at a time its turn."""

    def __init__(self, longest: int, announce: Callable[[int], Awaitable[None]]) -> None:
        self._longest, self._announce = longest, announce
        self._waiting: list[Place] = []
        self._is_taken = False

    @property
    def waiting(self) -> int:
        """How many wait, be it with a prompt or with something else that needs the session."""
        return len(self._waiting)

    def prompts(self) -> list[str]:
        """Return the prompts that wait, the next one first."""
        return [waiting.prompt or "" for waiting in self._with_prompts()]

    def _with_prompts(self) -> list[Place]:
        return [waiting for waiting in self._waiting if waiting.prompt is not None]

    def remove(self, position: int) -> str:
        """Take a waiting prompt out; the first one has position 1.

        Raises:
            NothingToSteerError: none waits there.
        """
        prompts = self._with_prompts()
        if not 1 <= position <= len(prompts):
            raise NothingToSteerError(f"no prompt waits at position {position}; {len(prompts)} wait")
        waiting = prompts[position - 1]
        self._waiting.remove(waiting)
        waiting.turn.cancel()
        return waiting.prompt or ""

    def close(self, reason: SessionError) -> None:
        """Turn everyone away who waits."""
        while self._waiting:
            waiting = self._waiting.pop(0)
            if not waiting.turn.done():
                waiting.turn.set_exception(reason)

    def reserve(self, prompt: str | None, *, may_wait: bool, session_id: str) -> Place:
        """Take the turn, or a place in the queue, at once; `turn` waits for it and gives it back.

        Raises:
            ExecutionInProgressError: a turn is running and the prompt is not to wait.
            QueueFullError: too many wait already.
        """
        place = Place(prompt, asyncio.get_running_loop().create_future())
        if not self._is_taken:
            self._is_taken = True
            place.turn.set_result(None)
            return place
        if not may_wait:
            raise ExecutionInProgressError(
                f"session {session_id} is executing a turn", hint="wait for it, queue the prompt, or cancel it"
            )
        if prompt is not None and len(self.prompts()) >= self._longest:
            raise QueueFullError(
                f"{self._longest} prompts wait in session {session_id} already", hint="raise sessions.max_queue"
            )
        self._waiting.append(place)
        return place

    @asynccontextmanager
    async def turn(self, place: Place) -> AsyncIterator[None]:
        """Hold the turn while the block runs.

        Raises:
            SessionStateError: the session was closed meanwhile.
            asyncio.CancelledError: it was taken out of the queue.
        """
        if not place.turn.done():
            await self._wait(place)
        place.turn.result()  # it may have been taken out before anyone waited for it
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, place: Place) -> None:
        try:
            if place.prompt is not None:
                await self._announce(self._with_prompts().index(place) + 1)
            await place.turn
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
            elif _is_given(place.turn):  # it was its turn at this very moment
                self._pass_on()
            raise

    def _pass_on(self) -> None:
        """Give the turn to the next prompt; it stays taken meanwhile."""
        while self._waiting:
            waiting = self._waiting.pop(0)
            if not waiting.turn.done():
                waiting.turn.set_result(None)
                return
        self._is_taken = False


def _is_given(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None
