"""What hands out turns. One contract suite holds every implementation to it.

A session runs one turn at a time; of those that wait, the one with the highest priority is next, and of these the one
that was submitted first.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from amplifier_core.exceptions import AmplifierError
from amplifierd.exceptions import (
    MemberFencedError,
    NotReadyError,
    NowhereToRunError,
    SessionHeldError,
    SessionNotFoundError,
    StoreUnavailableError,
)
from amplifierd.sessions.conversation.interrupted_turns import CONTINUES, InterruptedTurn
from amplifierd.store.protocol import SessionStore
from amplifierd.workers.live_sessions import LiveSessions, QueuedPrompts, SubmittedTurn, TurnRequest


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


# What follows a turn that ended with the process that ran it. It is never run again; its session may go on.


logger = logging.getLogger(__name__)

FIRST = 100
"""The priority of a turn that goes on with an interrupted one: what waits, waits for that."""

GO_ON = (
    "The process that ran your last turn ended before the turn did. The results of its tools say what became of each "
    "call; where it is not known whether one took effect, look before you do it again. Continue with what you were "
    "asked to do."
)

_LATER = (MemberFencedError, NotReadyError, NowhereToRunError, SessionHeldError, StoreUnavailableError)
"""What keeps something from following now, and may not the next time."""

Submit = Callable[[str, TurnRequest], Awaitable[SubmittedTurn]]


class FollowUps(Protocol):
    """What is to follow interrupted turns, kept from before they are marked until it has followed."""

    async def keep(self, interrupted: Sequence[InterruptedTurn]) -> None:
        """Have another member do it if this process ends before it has."""
        ...

    async def left(self) -> Sequence[InterruptedTurn]:
        """Return what is kept, unless another process that is there will do it."""
        ...

    async def drop(self, interrupted: InterruptedTurn) -> None:
        """Keep it no longer: it has followed, or is not to any more."""
        ...


def has_follow_up(interrupted: InterruptedTurn) -> bool:
    """True if something follows a turn by itself, rather than that a person is asked."""
    return interrupted.action in ("continue", "stop")


async def follow(
    interrupted: InterruptedTurn, follow_ups: FollowUps, store: SessionStore, live: LiveSessions, submit: Submit
) -> None:
    """Do what the policy of a session says: nothing while a person is asked, else go on, or end the session.

    It bears being done twice, also by two processes.
    """
    if not has_follow_up(interrupted):
        return
    session_id = interrupted.session_id
    try:
        if await _is_due(interrupted, store):
            await _follow(interrupted, live, submit)
    except _LATER as error:
        logger.info("session %s does not %s yet after its takeover: %s", session_id, interrupted.action, error)
        return
    except (AmplifierError, OSError) as error:
        logger.warning("session %s does not %s after its takeover: %s", session_id, interrupted.action, error)
    await follow_ups.drop(interrupted)


async def _is_due(interrupted: InterruptedTurn, store: SessionStore) -> bool:
    """True if a session was taken over after that turn, and nothing has come of it yet."""
    try:
        record = await store.read(interrupted.session_id)
    except SessionNotFoundError:
        return False
    taken = record.takeover or {}
    return record.status == "active" and (taken.get("turn"), taken.get("action")) == (
        interrupted.turn,
        interrupted.action,
    )


async def _follow(interrupted: InterruptedTurn, live: LiveSessions, submit: Submit) -> None:
    session_id, turn = interrupted.session_id, interrupted.turn
    if interrupted.action == "stop":
        reason = f"turn {turn} ended with the process that ran it, and on_takeover is stop"
        await live.acts.end(session_id, status="failed", error_message=reason)
        return
    broken_off = hashlib.sha256(f"{interrupted.correlation_id} {turn}".encode()).hexdigest()
    next_id = f"prompt_{session_id}_{broken_off[:16]}"  # the same one, whichever member submits it
    metadata = {CONTINUES: turn}
    await submit(session_id, TurnRequest(GO_ON, metadata, queue=True, priority=FIRST, correlation_id=next_id))
