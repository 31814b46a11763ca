"""Events and everyone who watches them: those of a session tree, with one counter, and those of a whole home."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, Protocol

from amplifier_system.tasks import start_task
from amplifierd.exceptions import OutcomeUnknownError, SessionError
from amplifierd.sessions.secret_values import PlainData
from amplifierd.store.cursor import Cursor

Event = dict[str, Any]
"""`{event, sequence, cursor, session_id, parent_id, root_session_id, timestamp, correlation_id, data}`.

`sequence` is the number of a stored event; a piece of an answer has none. `cursor` says where the event stands in its
tree; it is None as well where no tree counts any more: a session was deleted.
"""

_NOTHING: Mapping[str, Any] = MappingProxyType({})

BEGINNING = Cursor(1, 0)
"""Before the first event of a new tree."""


def is_delta(event: str) -> bool:
    """True if an event carries a piece of something that is told as a whole later."""
    return event.endswith(":delta") or event == "llm:stream_block_delta"


class EventSource:
    """Hands events to everyone who watches or listens; never waits for one."""

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[Event], None]] = {}

    def publish(self, event: Event) -> None:
        for hear in tuple(self._listeners.values()):
            hear(event)

    def listen(self, hear: Callable[[Event], None]) -> Callable[[], None]:
        """Call `hear` with each event as it is published, until the function that this returns is called."""
        key = object()
        self._listeners[key] = hear
        return lambda: self.unsubscribe(key)

    def subscribe(self, wants: Callable[[Event], bool] | None = None) -> Subscription:
        """The events from now on, all or those that are wanted, to be read one after the other."""
        subscription = Subscription(self, wants)
        self._listeners[subscription] = subscription.put
        return subscription

    def unsubscribe(self, key: object) -> None:
        self._listeners.pop(key, None)


class Entry:
    """An event on its way into a file and to those who watch.

    `data` is what it says, `stored` what the file gets of that, and `beside` what only the file gets; a piece of an
    answer is not stored. An `error` says that it could not be stored, and is not told; `unstored` is called if that is
    certain. It is told once the events up to number `after` were told or skipped.
    """

    __slots__ = ("after", "beside", "data", "error", "event", "is_own", "is_stored", "recorder", "stored", "unstored")

    def __init__(self, recorder: Recorder, event: Event, data: PlainData, *, after: int, is_own: bool) -> None:
        self.recorder, self.event, self.data, self.is_own = recorder, event, data, is_own
        self.after, self.is_stored = after, event["sequence"] is not None
        self.stored: Any = data.value
        self.beside: Mapping[str, Any] = _NOTHING
        self.error: BaseException | None = None
        self.unstored: Callable[[], None] | None = None


class Recorder(Protocol):
    """Stores the events of one session; what it cannot store gets an error."""

    def clean(self, entries: Sequence[Entry]) -> None:
        """Take the secrets out of events."""
        ...

    def try_store(self, entries: Sequence[Entry]) -> bool:
        """Store events at once; False when that takes waiting, and nothing has happened."""
        ...

    async def store(self, entries: Sequence[Entry]) -> None: ...


class TreeEvents(EventSource):
    """Numbers the events of a root session and its descendants; what is told here is told `beyond` as well.

    What comes in one step of the event loop is stored together. An event with a number is told once every earlier one
    was told or skipped: those who watch get them in order, however long each took to be stored. A piece of an answer
    takes no number: it follows the last event that was told.
    """

    def __init__(self, root_session_id: str, begin: Cursor = BEGINNING, *, beyond: EventSource | None = None) -> None:
        super().__init__()
        self.root_session_id, self.epoch = root_session_id, begin.epoch
        self._sequence = self._told = begin.seq  # a number above the second is taken, and waits to be told
        self._cursor = begin
        self._beyond = beyond
        self._ready: dict[int, Event | None] = {}
        self._pieces: deque[tuple[int, Event]] = deque()
        self._waiting: list[Entry] = []
        self._storing: asyncio.Task[None] | None = None

    @property
    def last_sequence(self) -> int:
        return self._sequence

    def next_sequence(self) -> int:
        """Return a number of its own; the caller is `telling` its event, or adds it."""
        self._sequence += 1
        return self._sequence

    @property
    def is_settled(self) -> bool:
        """True if everything that was added so far is told."""
        return not self._waiting and self._storing is None

    def add(self, entry: Entry) -> None:
        """Have an event stored and told soon."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self.flush)
        self._waiting.append(entry)

    def pass_on(self, piece: Event, after: int | None = None) -> None:
        """Tell a piece of an answer, which is not stored, at once, or as soon as the event before it is told."""
        before = self._sequence if after is None else after
        if before <= self._told and not self._pieces:
            self._tell(piece)
        else:
            self._pieces.append((before, piece))

    async def tell(self, entries: Sequence[Entry]) -> None:
        """Have events stored and told now; return when they are."""
        self._waiting += entries
        await self.settle()

    def flush(self) -> None:
        """Store and tell what waits, unless something before it is being stored."""
        if self._waiting and self._storing is None:
            entries, self._waiting = self._waiting, []
            try:
                left = _try_store(entries)
            except BaseException as error:
                for entry in entries:
                    entry.error = error
                self._end(entries)  # later events do not wait for them
                raise
            if left:
                self._storing = start_task(self._store(left, entries))
            else:
                self._end(entries)

    async def settle(self) -> None:
        """Return when everything that was added so far is stored and told, whatever is added meanwhile."""
        self.flush()
        last = self._sequence
        while self._storing is not None and self._told < last:
            await asyncio.shield(self._storing)

    async def _store(self, left: dict[Recorder, list[Entry]], entries: Sequence[Entry]) -> None:
        try:
            while left:
                recorder, batch = next(iter(left.items()))
                await recorder.store(batch)
                del left[recorder]
        except BaseException as error:
            for entry in (entry for batch in left.values() for entry in batch):
                entry.error = entry.error or error
            raise
        finally:
            self._storing = None
            self._end(entries)
            self.flush()

    def _end(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            event, sequence = entry.event, entry.event["sequence"]
            if entry.error is not None and entry.unstored is not None and _is_certain(entry.error):
                entry.unstored()
            if sequence is None:
                if entry.error is None:
                    self.pass_on(event, entry.after)
            elif sequence != self._told + 1 or self._pieces:
                self._ready[sequence] = event if entry.error is None else None
            else:
                self._told = sequence  # as nearly always
                if entry.error is None:
                    self._tell(event)
        if self._ready or self._pieces:
            self._tell_ready()

    def subscribe(self, wants: Callable[[Event], bool] | None = None) -> Subscription:
        self.flush()  # it gets what comes from now on
        return super().subscribe(wants)

    def publish(self, event: Event) -> None:
        """Tell everyone who watches, as soon as it is this event's turn."""
        self._ready[event["sequence"]] = event
        self._tell_ready()

    @contextmanager
    def telling(self, *events: Event) -> Iterator[None]:
        """Tell events once they are stored; where that fails, later ones do not wait for them."""
        try:
            yield
        except BaseException:
            for event in events:
                self.skip(event["sequence"])
            raise
        for event in events:
            self.publish(event)

    def skip(self, sequence: int) -> None:
        """Let later events pass: the one with this number is not told."""
        self._ready[sequence] = None
        self._tell_ready()

    def _tell_ready(self) -> None:
        self._tell_pieces()
        while self._told + 1 in self._ready:
            self._told += 1
            event = self._ready.pop(self._told)
            if event is not None:
                self._tell(event)
            self._tell_pieces()

    def _tell_pieces(self) -> None:
        while self._pieces and self._pieces[0][0] <= self._told:
            self._tell(self._pieces.popleft()[1])

    def _tell(self, event: Event) -> None:
        sequence = event["sequence"]
        self._cursor = self._cursor.next_piece() if sequence is None else Cursor(self.epoch, sequence)
        event["cursor"] = str(self._cursor)
        for hear in tuple(self._listeners.values()):
            hear(event)
        if self._beyond is not None:
            self._beyond.publish(event)


def _is_certain(error: BaseException) -> bool:
    """True if an error says that nothing was stored."""
    return isinstance(error, SessionError) and not isinstance(error, OutcomeUnknownError)


def _try_store(entries: Sequence[Entry]) -> dict[Recorder, list[Entry]]:
    """Store events at once, each at its session; returns those for which that takes waiting."""
    batches: dict[Recorder, list[Entry]] = {}
    for entry in entries:
        batches.setdefault(entry.recorder, []).append(entry)
    for recorder, batch in batches.items():
        recorder.clean(batch)
    return {recorder: batch for recorder, batch in batches.items() if not recorder.try_store(batch)}


class Subscription:
    """The events that come from now on: `async for event in subscription`, until it is closed."""

    def __init__(self, source: EventSource, wants: Callable[[Event], bool] | None = None) -> None:
        self._source, self._wants = source, wants
        self._come: deque[Event | None] = deque()
        self._waiting: asyncio.Future[None] | None = None

    def put(self, event: Event) -> None:
        if self._wants is None or self._wants(event):
            self._append(event)

    def close(self) -> None:
        """End the iteration once what has come already is read."""
        self._source.unsubscribe(self)
        self._append(None)

    def _append(self, event: Event | None) -> None:
        self._come.append(event)
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        try:
            while (event := await self._next()) is not None:
                yield event
        finally:
            self._source.unsubscribe(self)

    async def _next(self) -> Event | None:
        while not self._come:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self._come.popleft()
