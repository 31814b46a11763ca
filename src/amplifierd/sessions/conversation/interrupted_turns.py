"""Turns that ended with the process that ran them: marked and told, without loading the session's modules."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from amplifierd.exceptions import SessionError
from amplifierd.problems import interrupted_document
from amplifierd.sessions.events.announcements import Announcements
from amplifierd.sessions.events.tree_history import SessionHistory, last_cursor, session_history
from amplifierd.sessions.layers.uncounted_usage import TURN_BEGUN, TURN_DONE, last_mark
from amplifierd.store.cursor import Cursor
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.protocol import Message, SessionStore
from amplifierd.store.record import OnTakeover, SessionRecord, now

from .interruption import BrokenTurn, Remains, find_broken_turn

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

TAKEN_OVER = "session:taken_over"
CONTINUES = "continues"
"""In the metadata of a prompt: the turn that was interrupted, and that it goes on with."""

_AT_ONCE = 16
"""Each mark waits for the disk several times, and a daemon is ready after the last of them."""


@dataclass(frozen=True)
class InterruptedTurn:
    """A turn that was interrupted, and what is to follow by the session's `on_takeover`.

    Nothing follows the turn of an agent, nor one that had given its answer.
    """

    session_id: str
    turn: int | None = None
    action: OnTakeover | None = None
    correlation_id: str | None = None


Keep = Callable[[Sequence[InterruptedTurn]], Awaitable[None]]
"""Makes sure that what is to follow some turns will, whatever becomes of this process. Called before they are marked:
once they are, they are not found again. A turn of which this was said may turn out to be marked by another process."""


async def _trust(interrupted: Sequence[InterruptedTurn]) -> None:
    """Leave it to the caller, who does at once what follows."""


@dataclass(frozen=True)
class _Found:
    """A session whose turn had not ended. The end of a `broken` one is told after `last`, the end of its tree."""

    history: SessionHistory
    messages: Sequence[Message]
    broken: BrokenTurn | None
    last: Cursor

    @property
    def interrupted(self) -> InterruptedTurn:
        record, broken = self.history.record, self.broken
        if broken is None:
            return InterruptedTurn(record.session_id)
        has_answered = broken.done(self.messages)["status"] == "completed"
        action = None if has_answered else _action(record, self.messages, broken.number)
        return InterruptedTurn(record.session_id, broken.number, action, broken.correlation_id)


class InterruptedTurns:
    """Finds and marks interrupted turns. Whoever waits for the end of one is told it.

    What the turn left behind is repaired when the session is opened next; so is the turn of an agent, whose events are
    numbered with those of its root.
    """

    def __init__(self, store: SessionStore, holder: Holder, announcements: Announcements) -> None:
        self._store, self._holder, self._announcements = store, holder, announcements

    async def mark_all(self, keep: Keep = _trust) -> Sequence[InterruptedTurn]:
        """Mark the interrupted turns of all abandoned sessions.

        All are looked at before the first is changed: each change has to be in the index before that is asked next.
        """
        latest = await self._store.last_events(await self._store.abandoned(), (TURN_BEGUN, TURN_DONE))
        unended = [session_id for session_id, event in latest.items() if event["event"] == TURN_BEGUN]
        found = await _for_each(self._look, unended)
        await keep([one.interrupted for one in found])
        return await _for_each(self._mark, found)

    async def take_over(self, session_id: str, keep: Keep = _trust) -> InterruptedTurn | None:
        """Mark the interrupted turn of a session, if it has one, and release it.

        It is held while it is looked at: others may take sessions of the same tree over, which share its numbers.
        """
        hold = await self._store.acquire(session_id, self._holder)
        try:
            found = await self._look(session_id, closely=True)
            if found is None:
                return None
            await keep([found.interrupted])
            return await self._mark_held(hold, found)
        finally:
            await self._store.release(hold)

    async def _look(self, session_id: str, *, closely: bool = False) -> _Found | None:
        """Look whether a turn was begun and not ended; `closely` finds also one of which only the prompt was stored."""
        history = await session_history(self._store, session_id)
        if not history.is_in_turn and not closely:
            return None
        messages = await self._store.read_messages(session_id)
        events = history.uncounted
        if history.is_in_turn and last_mark(events) is None:
            counted = history.record.usage_seq or 0
            events = (await Remains.read(self._store.read_event_page, session_id, counted)).events
        broken = find_broken_turn(messages, events, history.record.turn_count)
        if not history.is_in_turn and (broken is None or broken.is_told):
            return None
        is_told = broken is not None and history.record.root_id == session_id
        last = await last_cursor(self._store, session_id, history) if is_told else history.last
        return _Found(history, messages, broken if is_told else None, last)

    async def _mark(self, found: _Found) -> InterruptedTurn | None:
        session_id = found.history.record.session_id
        hold = await self._store.acquire(session_id, self._holder)
        try:
            if await self._store.last_cursor(session_id) != found.history.last:
                return None  # another process has opened it meanwhile, and knows what became of its turn
            return await self._mark_held(hold, found)
        finally:
            await self._store.release(hold)

    async def _mark_held(self, hold: Hold, found: _Found) -> InterruptedTurn:
        record, interrupted = found.history.record, found.interrupted
        changes: dict[str, Any] = {"last_error": interrupted_document(record.session_id)}
        policy = {"turn": interrupted.turn, "action": interrupted.action}
        if interrupted.action is not None:
            changes["takeover"] = {**policy, "at": now()}
        if found.broken is None:
            await self._store.update(hold, **changes)
            return interrupted
        lines: list[tuple[str, dict[str, Any]]] = [(TURN_DONE, found.broken.done(found.messages))]
        lines += [(TAKEN_OVER, policy)] if interrupted.action is not None else []
        tree = self._announcements.tree(record.root_id, found.last.resumed(hold.epoch))
        journal = self._announcements.journal(hold, record, tree)
        journal.correlation_id = interrupted.correlation_id
        await journal.end_turn(found.broken.turn_id, lines, changes)
        return interrupted


async def _for_each(work: Callable[[T], Awaitable[R | None]], of: Iterable[T]) -> list[R]:
    """Do something with a few at a time; one with which it fails is left out, with a warning."""
    few = asyncio.Semaphore(_AT_ONCE)

    async def attempt(one: T) -> R | None:
        async with few:
            try:
                return await work(one)
            except (SessionError, OSError) as error:
                logger.warning("a turn cannot be marked as interrupted: %s", error)
                return None

    return [done for done in await asyncio.gather(*map(attempt, of)) if done is not None]


def _action(record: SessionRecord, messages: Sequence[Message], turn: int) -> OnTakeover:
    """Return what follows; what was interrupted twice is not continued by itself again."""
    said = (message.get("metadata") or {} for message in messages if message.get("turn") == turn)
    if record.on_takeover == "continue" and any(CONTINUES in metadata for metadata in said):
        return "ask"
    return record.on_takeover
