"""Which queue a daemon's turns go through."""

from __future__ import annotations

from amplifierd.home import Home
from amplifierd.live_sessions import LiveSessions, OnEvent

from .local_turn_queue import LocalTurnQueue
from .turn_queue import TurnQueue


def open_turns(home: Home, live: LiveSessions, on_event: OnEvent) -> TurnQueue:
    """Return the queue for the turns of a home: with a store that others share, one that they share as well.

    `on_event` hears of turns that no session tells.
    """
    if home.settings.store.is_files:
        return LocalTurnQueue(home.sessions, live)
    from .durable.durable_turn_queue import DurableTurnQueue  # with its engine, an extra

    return DurableTurnQueue(home.sessions, live, on_event)
