"""Prompts that wait while a turn runs, first come, first served within a priority.

They are stored with the session. Those whose process ended before their turn came are held: they are in the queue, but
no one knows whether they are still wanted, so they never run by themselves. A person takes one out, or sends it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from amplifier_system.tasks import run_to_end
from amplifierd.exceptions import (
    ExecutionInProgressError,
    NothingToSteerError,
    QueueFullError,
    SessionError,
    TurnDeadlineError,
)


@dataclass(eq=False)
class Place:
    """What a prompt has got: the turn, or a place in the queue for it; without one it is for work between two turns."""

    prompt: str | None
    turn: asyncio.Future[None]
    priority: int = 0


DOCUMENT = "queue"
"""The name under which a session's prompts are stored."""


class PromptQueue:
    """Gives one prompt at a time its turn. `store` keeps the prompts, `announce` tells of one that has to wait."""

    def __init__(
        self,
        longest: int,
        announce: Callable[[int], Awaitable[None]],
        store: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._longest, self._announce, self._store = longest, announce, store
        self._held: list[str] = []
        self._stored: list[str] = []
        self._storing = asyncio.Lock()
        self._waiting: list[Place] = []
        self._is_taken = self._is_closed = False

    @property
    def waiting(self) -> int:
        """How many wait, be it with a prompt or with something else that needs the session."""
        return len(self._waiting)

    @property
    def waiting_prompts(self) -> int:
        return len(self._with_prompts())

    @property
    def held(self) -> int:
        """How many prompts are held; they are the first of all."""
        return len(self._held)

    def prompts(self) -> list[str]:
        """Return the prompts that are held and those that wait, the next one first."""
        return [*self._held, *(waiting.prompt or "" for waiting in self._with_prompts())]

    def hold(self, prompts: Sequence[str]) -> None:
        """Take in what was stored by a process that has ended."""
        self._held, self._stored = list(prompts), list(prompts)

    async def save(self) -> None:
        """Return when the prompts that are held or wait now are stored."""
        async with self._storing:
            prompts = self.prompts()
            if prompts != self._stored and not self._is_closed:
                await self._store(prompts)
                self._stored = prompts

    def _with_prompts(self) -> list[Place]:
        return [waiting for waiting in self._waiting if waiting.prompt is not None]

    def remove(self, position: int) -> str:
        """Take a prompt out; the first one has position 1.

        Raises:
            NothingToSteerError: there is none.
        """
        found = len(self.prompts())
        if not 1 <= position <= found:
            raise NothingToSteerError(f"no prompt waits at position {position}; {found} wait")
        if position <= self.held:
            return self._held.pop(position - 1)
        waiting = self._with_prompts()[position - self.held - 1]
        self._waiting.remove(waiting)
        waiting.turn.cancel()
        return waiting.prompt or ""

    def close(self, reason: SessionError) -> None:
        """Turn everyone away who waits; their prompts stay stored, and are held when the session is opened again."""
        self._is_closed = True
        while self._waiting:
            waiting = self._waiting.pop(0)
            if not waiting.turn.done():
                waiting.turn.set_exception(reason)

    def reserve(self, prompt: str | None, *, may_wait: bool, session_id: str, priority: int = 0) -> Place:
        """Take the turn, or a place in the queue, at once; `turn` waits for it and gives it back.

        A prompt that is held was sent again with this one, and is held no longer.

        Raises:
            ExecutionInProgressError: a turn is running and the prompt is not to wait.
            QueueFullError: too many wait already.
        """
        place = Place(prompt, asyncio.get_running_loop().create_future(), priority)
        if not self._is_taken:
            self._is_taken = True
            place.turn.set_result(None)
            self._release(prompt)
            return place
        if not may_wait:
            raise ExecutionInProgressError(
                f"session {session_id} is executing a turn", hint="wait for it, queue the prompt, or cancel it"
            )
        if prompt is not None and len(self._with_prompts()) >= self._longest:
            raise QueueFullError(
                f"{self._longest} prompts wait in session {session_id} already", hint="raise sessions.max_queue"
            )
        first_below = (n for n, waiting in enumerate(self._waiting) if waiting.priority < priority)
        self._waiting.insert(next(first_below, len(self._waiting)), place)
        self._release(prompt)
        return place

    def _release(self, prompt: str | None) -> None:
        if prompt in self._held:
            self._held.remove(prompt)

    @asynccontextmanager
    async def turn(self, place: Place, deadline_s: float | None = None) -> AsyncIterator[None]:
        """Hold the turn while the block runs.

        Raises:
            SessionStateError: the session was closed meanwhile.
            TurnDeadlineError: it did not come in time.
            asyncio.CancelledError: it was taken out of the queue.
        """
        if not place.turn.done():
            try:
                async with asyncio.timeout(deadline_s):
                    await self._wait(place)
            except TimeoutError:
                raise deadline_passed(deadline_s) from None
        place.turn.result()  # it may have been taken out before anyone waited for it
        try:
            yield
        finally:
            self._pass_on()

    async def _wait(self, place: Place) -> None:
        try:
            if place.prompt is not None:
                await self.save()
                if place in self._waiting:
                    await self._announce(self._with_prompts().index(place) + 1)
            await place.turn
        except BaseException:
            if place in self._waiting:
                self._waiting.remove(place)
                await run_to_end(self.save())
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


def deadline_passed(deadline_s: float | None) -> TurnDeadlineError:
    return TurnDeadlineError(
        f"the turn did not begin within its deadline of {deadline_s or 0:g} s, and never will",
        hint="submit it again, with a later deadline or a higher priority",
    )


def _is_given(turn: asyncio.Future[None]) -> bool:
    return turn.done() and not turn.cancelled() and turn.exception() is None
