"""Which queue a daemon's turns go through."""

from __future__ import annotations

from amplifierd.sessions.home_sessions import Sessions
from amplifierd.workers.live_sessions import LiveSessions, OnEvent

from .local_turn_queue import LocalTurnQueue
from .turn_queue import TurnQueue


def open_turns(sessions: Sessions, live: LiveSessions, on_event: OnEvent, on_end_elsewhere: OnEvent) -> TurnQueue:
    """Return the queue for the turns of sessions: with a store that others share, one that they share as well.

    `on_event` hears of turns that no session tells, `on_end_elsewhere` of those ends of turns that any of the others
    told its own `on_event`.
    """
    if sessions.runtime.settings.store.is_files:
        return LocalTurnQueue(sessions, live)
    from .durable.durable_turn_queue import DurableTurnQueue  # with its engine, an extra

    return DurableTurnQueue(sessions, live, on_event, on_end_elsewhere)
