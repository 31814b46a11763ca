"""What follows a turn that ended with the process that ran it. It is never run again; its session may go on."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from amplifier_core.exceptions import AmplifierError
from amplifierd.live_sessions import LiveSessions, SubmittedTurn, TurnRequest
from amplifierd.sessions.interrupted_turns import CONTINUES, InterruptedTurn

logger = logging.getLogger(__name__)

FIRST = 100
"""The priority of a turn that goes on with an interrupted one: what waits, waits for that."""

GO_ON = (
    "The process that ran your last turn ended before the turn did. The results of its tools say what became of each "
    "call; where it is not known whether one took effect, look before you do it again. Go on with what you were asked "
    "to do."
)

Submit = Callable[[str, TurnRequest], Awaitable[SubmittedTurn]]


async def follow(interrupted: InterruptedTurn, live: LiveSessions, submit: Submit) -> None:
    """Do what the policy of a session says: nothing while a person is asked, else go on, or end the session."""
    session_id, turn = interrupted.session_id, interrupted.turn
    try:
        if interrupted.action == "continue":
            await submit(session_id, TurnRequest(GO_ON, metadata={CONTINUES: turn}, queue=True, priority=FIRST))
        elif interrupted.action == "stop":
            reason = f"turn {turn} ended with the process that ran it, and on_takeover is stop"
            await live.perform(session_id, "end", status="failed", error_message=reason)
    except (AmplifierError, OSError) as error:
        logger.warning("session %s does not %s after its takeover: %s", session_id, interrupted.action, error)
