"""The journal of one session: every event is numbered, stored and told, in this order."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from amplifier_core import HookResult, ModuleCoordinator, events
from amplifierd.event_types import MODULE_EVENTS
from amplifierd.exceptions import HoldLostError, SessionError, StoreClosedError, StoreUnavailableError
from amplifierd.sessions.secret_values import SecretValues, plain_data
from amplifierd.store.protocol import Hold, SessionStore, StoredEvent
from amplifierd.store.record import SessionRecord, now

from .tree_events import Entry, Event, TreeEvents, is_delta

logger = logging.getLogger(__name__)

PRIORITY = 1_000_000_000
"""Heard after every other handler: what is written is what redaction and the others made of it."""

_FIRST = -PRIORITY

_LEVELS = {"error": "ERROR", "warning": "WARNING"}
_ALWAYS_HEARD = frozenset((*events.ALL_EVENTS, *MODULE_EVENTS))
_KEPT_ELSEWHERE = {
    "provider:request": ("messages",),
    "llm:request": ("raw",),
    "llm:response": ("raw",),
    "tool:post": ("result", "tool_result"),
}
"""What a stored event leaves out, because the stored requests, the transcript and the receipts have it."""

_QUESTIONS = "approval:"
"""How the events begin that ask a person, who has to see all that will run; of them, only what is stored is masked."""

_TELLING = (
    *("session:start", "session:resume", "session:fork", "session:end", "session:config"),
    *("module:load_failed", "module:on_session_ready_failed"),
    *("provider:error", "provider:retry", "llm:request", "llm:response"),
)
"""Events with configurations and errors in them: secrets are masked before any module that logs hears of them."""

PIECES = {"llm:stream_block_delta": "text", "content_block:delta": "delta"}
"""Events that bring a piece of an answer, each with the key of its text; `on_piece` hears them as well."""

CHANGES = "changes"
"""What the stored end of a turn changes in the record; beside it, the id that the turn has since it was accepted."""

_AGAIN_S = 1.0
_PATIENCE_S = 60.0
"""For how long the marks of a turn wait for a database: others take the sessions of a process over much earlier."""

GO_ON = HookResult()

NOT_NESTED: Mapping[str, Any] = MappingProxyType({})


class Journal:
    """Writes what happens in a session down and passes it on to the tree's subscribers.

    `correlation_id` is that of the prompt that everything below it belongs to. A child's events say how deep it is and
    which tool call it serves.
    """

    def __init__(
        self,
        store: SessionStore,
        hold: Hold,
        record: SessionRecord,
        tree: TreeEvents,
        secrets: SecretValues,
        *,
        nesting: Mapping[str, Any] = NOT_NESTED,
    ) -> None:
        self.correlation_id: str | None = None
        self.lost: HoldLostError | None = None
        self.on_lost: Callable[[], None] = lambda: None
        self.on_piece: Callable[[str, Mapping[str, Any]], None] = lambda event, data: None
        self._nesting = nesting
        self._store, self._hold, self._tree, self._secrets = store, hold, tree, secrets
        self._session_id = record.session_id
        self._form = event_of("", None, place_of(record), None, nesting=nesting)
        self._coordinator: ModuleCoordinator | None = None
        self._announced: set[str] = set()
        self._ended: dict[str, SessionRecord] = {}

    async def write(
        self, event: str, data: Mapping[str, Any], *, lasting: bool = False, unstored: Callable[[], None] | None = None
    ) -> Event:
        """Store an event of ours and tell it; `unstored` is called if it is certain that it is not stored."""
        entry = self._entry(event, data, is_own=True)
        entry.unstored = unstored
        return (await self._written([entry], lasting=lasting))[0]

    async def write_all(
        self, entries: Sequence[tuple[str, Mapping[str, Any]]], *, lasting: bool = False
    ) -> list[Event]:
        """Store events of ours in one step, all of them or none, and tell them."""
        return await self._written([self._entry(name, data, is_own=True) for name, data in entries], lasting=lasting)

    async def begin_turn(self, turn_id: str, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Store that a turn begins, and tell it; a store that is away is waited for."""
        noted = [self._entry(name, data, is_own=True) for name, data in entries]
        for entry in noted:
            entry.beside = {"turn_id": turn_id}
        await self._written(noted)

    async def end_turn(
        self, turn_id: str, entries: Sequence[tuple[str, Mapping[str, Any]]], changes: Mapping[str, Any]
    ) -> SessionRecord:
        """Store how a turn ended and what that changes in the record, in one step, and tell it; returns the record.

        It is built once, and given again unchanged while it is not known to be stored. A store that is away is waited
        for; where that takes too long, or the store is closed, the end is left to the next holder.
        """
        noted = [self._entry(name, data, is_own=True) for name, data in entries]
        noted[-1].beside = {"turn_id": turn_id, CHANGES: dict(changes)}
        await self._written(noted)
        return self._ended[turn_id]

    async def _written(self, noted: Sequence[Entry], *, lasting: bool = False) -> list[Event]:
        await self._tree.tell(noted)
        for entry in noted:
            if entry.error is not None:
                raise entry.error
        if lasting:
            await self._store.synchronise(self._hold)
        return [entry.event for entry in noted]

    async def write_soon(
        self, event: str, data: Mapping[str, Any], *, unstored: Callable[[], None] | None = None
    ) -> None:
        """Store an event of ours and tell it, as `write_all_soon` does; `unstored` is as for `write`."""
        entry = self._entry(event, data, is_own=True)
        entry.unstored = unstored
        self._tree.add(entry)

    async def write_all_soon(self, entries: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Store events of ours and tell them, together with what else happens in this step of the event loop.

        They are told when they are stored, as always; nobody waits for what cannot be stored, which is logged.
        """
        for name, data in entries:
            self._tree.add(self._entry(name, data, is_own=True))

    def hear(self, event: str, data: dict[str, Any]) -> HookResult:
        """Record an event of the kernel or of a module."""
        if event in _KEPT_ELSEWHERE:
            for key in _KEPT_ELSEWHERE[event]:
                data.pop(key, None)
        self._tree.add(self._entry(event, data, is_own=False))
        return GO_ON

    def hear_delta(self, event: str, data: dict[str, Any]) -> HookResult:
        """Tell a piece of something at once; there are so many of them that each takes the shortest way."""
        tree = self._tree
        if tree.is_settled:
            plain = plain_data(data)
            found = plain.value
            if self._secrets.are_in(plain.texts, plain.keys):
                found, _ = self._secrets.cleaned(plain, by_name=True)
            tree.pass_on(self._event(event, found, None))
        else:
            tree.add(self._entry(event, data, is_own=False))
        if event in PIECES:
            self.on_piece(event, data)
        return GO_ON

    def note(self, event: str, data: Mapping[str, Any]) -> None:
        """Store an event of ours and tell it; where that fails, the one who notes it does not hear of it."""
        self._tree.add(self._entry(event, data, is_own=False))
        self._tree.flush()

    async def mask(self, event: str, data: dict[str, Any]) -> HookResult:
        """Take the secrets out of an event before others hear it."""
        masked = self._secrets.masked(data)
        return HookResult() if masked == data else HookResult(action="modify", data=masked)

    async def listen(self, coordinator: ModuleCoordinator) -> None:
        """Hear every event that is known of: the kernel's, those of modules we know, those that modules announce."""
        announced = await coordinator.collect_contributions("observability.events")
        names = {name for names in announced if isinstance(names, list | tuple) for name in names}
        further = {name for name in names if isinstance(name, str)} - _ALWAYS_HEARD
        if coordinator is not self._coordinator:  # the modules were loaded anew
            self._coordinator, self._announced = coordinator, set()
            self._register(coordinator, _ALWAYS_HEARD)
        self._register(coordinator, sorted(further - self._announced))
        self._announced |= further

    def _register(self, coordinator: ModuleCoordinator, names: Iterable[str]) -> None:
        register, hear, hear_delta, mask = coordinator.hooks.register, self.hear, self.hear_delta, self.mask
        for name in names:
            register(name, hear_delta if is_delta(name) else hear, priority=PRIORITY, name="session-journal")
            if name in _TELLING:
                register(name, mask, priority=_FIRST, name="session-secrets")

    def clean(self, entries: Sequence[Entry]) -> None:
        texts = [text for entry in entries for text in entry.data.texts]
        keys = [key for entry in entries for key in entry.data.keys]
        if self._secrets.may_be_in(texts, keys):
            for entry in entries:
                found, stored = self._secrets.cleaned(entry.data, by_name=not entry.is_own)
                entry.event["data"] = found if entry.event["event"].startswith(_QUESTIONS) else stored
                entry.stored = stored

    def try_store(self, entries: Sequence[Entry]) -> bool:
        if any(CHANGES in entry.beside for entry in entries):
            return False
        try:
            return self._store.try_append_events(self._hold, self._lines(entries))
        except SessionError as error:
            self._note_failure(entries, error)
            return True

    async def store(self, entries: Sequence[Entry]) -> None:
        lines, append_id = self._lines(entries), uuid.uuid4().hex
        marks = [entry.beside for entry in entries if entry.beside]
        limit = time.monotonic() + (_PATIENCE_S if marks else 0)
        while True:
            try:
                await self._give(lines, append_id, marks)
            except StoreUnavailableError as error:
                if isinstance(error, StoreClosedError) or time.monotonic() >= limit:
                    self._note_failure(entries, error)
                    return
                logger.warning("session %s waits for its store: %s", self._session_id, error)
                await asyncio.sleep(_AGAIN_S)
                continue
            except SessionError as error:
                self._note_failure(entries, error)
            return

    async def _give(self, lines: Sequence[StoredEvent], append_id: str, marks: Sequence[Mapping[str, Any]]) -> None:
        """Hand lines to the store; the same ones again have no further effect."""
        for end in marks:
            if CHANGES in end:
                turn_id, changes = end["turn_id"], end[CHANGES]
                self._ended = {turn_id: await self._store.end_turn(self._hold, turn_id, lines, **changes)}
                return
        await self._store.append_events(self._hold, lines, append_id=append_id)

    def _lines(self, entries: Sequence[Entry]) -> list[StoredEvent]:
        epoch, nesting = self._tree.epoch, self._nesting
        lines = [stored_line(entry.event, entry.stored, epoch, nesting) for entry in entries if entry.is_stored]
        if any([entry.beside for entry in entries]):
            beside = [entry.beside for entry in entries if entry.is_stored]
            return [{**line, **further} for line, further in zip(lines, beside, strict=True)]
        return lines

    def _note_failure(self, entries: Sequence[Entry], error: SessionError) -> None:
        """Keep events from those who watch that are not stored; a passing piece is told, unless the hold is lost."""
        if isinstance(error, HoldLostError) and self.lost is None:
            self.lost = error
            self.on_lost()
        for entry in entries:
            if entry.is_stored or isinstance(error, HoldLostError):
                entry.error = error
            if entry.is_stored:
                name = entry.event["event"]
                logger.warning("event %s of session %s is not stored: %s", name, self._session_id, error)

    def _entry(self, name: str, data: Mapping[str, Any], *, is_own: bool) -> Entry:
        plain, tree = plain_data(data), self._tree
        before, sequence = tree.last_sequence, None if is_delta(name) else tree.next_sequence()
        return Entry(self, self._event(name, plain.value, sequence), plain, after=before, is_own=is_own)

    def _event(self, name: str, data: Any, sequence: int | None) -> Event:
        event = self._form.copy()
        event["event"], event["sequence"], event["timestamp"] = name, sequence, now()
        event["correlation_id"], event["data"] = self.correlation_id, data
        return event


def nesting_of(depth: int, tool_call_id: str | None) -> dict[str, Any]:
    """Return what the events of a child say about its place in the tree."""
    return {"nesting_depth": depth, "parent_tool_call_id": tool_call_id}


def place_of(record: SessionRecord) -> dict[str, Any]:
    """Return where events of a session happen."""
    return {
        "session_id": record.session_id,
        "parent_id": record.parent_session_id,
        "root_session_id": record.root_id,
    }


def event_of(
    name: str,
    data: Any,
    place: Mapping[str, Any],
    sequence: int | None,
    correlation_id: str | None = None,
    nesting: Mapping[str, Any] = NOT_NESTED,
) -> Event:
    """Return an event as it is told; where it stands in its tree is added when it is."""
    return {
        "event": name,
        "sequence": sequence,
        "cursor": None,
        **place,
        "timestamp": now(),
        "correlation_id": correlation_id,
        **nesting,
        "data": data,
    }


def stored_line(told: Event, data: Any, epoch: int, nesting: Mapping[str, Any] = NOT_NESTED) -> StoredEvent:
    """Return an event as it is stored, with the data that is kept of it."""
    name, level = told["event"], told["data"].get("level")
    return {
        "seq": told["sequence"],
        "epoch": epoch,
        "ts": told["timestamp"],
        "lvl": (level and _LEVELS.get(str(level))) or ("ERROR" if name.endswith(":error") else "INFO"),
        "event": name,
        "session_id": told["session_id"],
        "parent_id": told["parent_id"],
        "correlation_id": told["correlation_id"],
        **nesting,
        "data": data,
    }
