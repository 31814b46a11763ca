"""What hands out turns. One contract suite holds every implementation to it.

A session runs one turn at a time; of those that wait, the one with the highest priority is next, and of these the one
that was submitted first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from amplifierd.live_sessions import QueuedPrompts, SubmittedTurn, TurnRequest


@dataclass(frozen=True)
class TurnKey:
    """The key that a client gave a submit, so that it can be repeated; `fingerprint` tells it from another request."""

    owner: str
    key: str
    fingerprint: str


class TurnQueue(Protocol):
    """Takes turns on and has them run, wherever their sessions are.

    `keeps_keys` says that it knows a submit by its key for a day, whatever becomes of the member that took it on.
    """

    keeps_keys: bool

    async def start(self) -> None:
        """Come up, and take over what processes left that are gone; what follows goes on meanwhile."""
        ...

    async def drain(self) -> None:
        """Have no further turns begin here; what waits is left to others. Returns when those that run have ended."""
        ...

    async def abandon(self) -> None:
        """Let go of every turn that was taken here: others have them, or will, and this process begins none of them."""
        ...

    async def stop(self) -> None:
        """Have no further turns begin here, whatever becomes of those that wait."""
        ...

    async def close(self) -> None:
        """Wait until what became of the turns that ran here is kept."""
        ...

    async def submit(self, session_id: str, turn: TurnRequest, key: TurnKey | None = None) -> SubmittedTurn:
        """Take a turn on; returns as soon as it is sure to run, or waits for its time.

        Raises:
            IdempotencyConflictError: the key stands for another request.
            ExecutionInProgressError, QueueFullError, SessionStateError, SessionHeldError: it was not taken on.
        """
        ...

    async def waiting(self, session_id: str) -> QueuedPrompts:
        """Return the prompts of a session that have not begun, the next one first."""
        ...

    async def remove(self, session_id: str, position: int) -> str:
        """Take a prompt out that has not begun, and return it; the first one has position 1.

        Raises:
            NothingToSteerError: there is none.
        """
        ...

    async def take_over(self, session_id: str) -> None:
        """Take a session from a process that is gone.

        A turn that had begun there never runs again. It is marked as interrupted, and the session's `on_takeover` says
        what follows.

        Raises:
            SessionHeldError: the process is there.
        """
        ...
