"""What any store of sessions does. One contract suite holds every implementation to it.

Every write is made under a hold. Its epoch grows by one with each acquisition, and a write under an older one is
refused: a process that slept while another took its session over can change nothing any more. Reading needs no hold.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from amplifier_sessions.event_page import EventPage, EventPlace
from amplifier_sessions.session_query import SessionQuery
from amplifierd.store_address import StoreAddress

from .cursor import Cursor
from .hold import Hold, Holder
from .json_lines import count_lines, read_since
from .record import SessionRecord

__all__ = [
    "Cursor",
    "EventPage",
    "EventPlace",
    "Hold",
    "Holder",
    "Message",
    "MessagePage",
    "NewSession",
    "Place",
    "SearchHit",
    "SessionPage",
    "SessionQuery",
    "SessionStore",
    "StoreSnapshot",
    "StoredEvent",
    "TrashedSession",
]

Message = dict[str, Any]
"""A line of a transcript: `{id, timestamp, role, content, turn, …}`."""

StoredEvent = dict[str, Any]
"""A line of the events: `{seq, epoch, ts, lvl, event, session_id, parent_id, correlation_id, data}`."""


@dataclass(frozen=True)
class SessionPage:
    """A page of a list, and how many there are in all."""

    sessions: tuple[SessionRecord, ...]
    total: int

    def __iter__(self) -> Iterator[SessionRecord]:
        return iter(self.sessions)

    def __len__(self) -> int:
        return len(self.sessions)


@dataclass(frozen=True)
class SearchHit:
    """A session in which a text was found; `snippet` shows the first place, `message_id` names its message."""

    record: SessionRecord
    snippet: str
    message_id: str | None = None
    turn: int | None = None


@dataclass(frozen=True)
class NewSession:
    """Everything a session begins with; it is written whole or not at all.

    One that is moved from another store begins with plans that were archived there, the first one first. Messages,
    events and parts may be read from somewhere else each time they are gone through, so that they need no memory.
    """

    record: SessionRecord
    plan: Mapping[str, Any]
    messages: Collection[Message] = ()
    events: Collection[StoredEvent] = ()
    documents: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, bytes] = field(default_factory=dict)
    archived_plans: Sequence[Mapping[str, Any]] = ()


class StoreSnapshot(Protocol):
    """What a store has at one moment, as far as it can tell: a database as a whole, files session by session."""

    async def session_ids(self) -> Sequence[str]: ...

    async def read_whole(self, session_id: str) -> NewSession:
        """Return everything that a session has, as `add` takes it."""
        ...


@dataclass(frozen=True)
class TrashedSession:
    """A session that was deleted and can be brought back."""

    record: SessionRecord
    deleted_at: str


class SessionStore(Protocol):
    """Keeps sessions.

    Methods raise `SessionNotFoundError`, `FormatUnsupportedError` for one that a newer version wrote,
    `SessionHeldError` when another process holds it, and `HoldLostError` for a write under an epoch that has passed.
    `lasting` writes are on the disk when the call returns. After a `StoreUnavailableError` nothing was written, unless
    it is an `OutcomeUnknownError`.
    """

    @property
    def address(self) -> StoreAddress:
        """Where it is, with the password that it takes to use it."""
        ...

    async def check(self) -> None:
        """Make sure that the store can be used.

        Raises:
            FormatUnsupportedError: a newer version made it.
            StoreUnavailableError: it cannot be reached.
        """
        ...

    async def status(self) -> dict[str, Any]:
        """Return what an operator wants to know of the store: where it is, what it has, how it is doing."""
        ...

    async def create(self, new: NewSession, holder: Holder) -> Hold:
        """Store a session and hold it. Raises `SessionExistsError`."""
        ...

    async def add(self, new: NewSession, holder: Holder) -> None:
        """Store a session that no one holds; `holder` is the process that does. Raises `SessionExistsError`."""
        ...

    async def read(self, session_id: str) -> SessionRecord: ...

    async def existing(self, session_ids: Sequence[str]) -> Collection[str]:
        """Return those of some ids under which there is a session."""
        ...

    async def read_plan(self, session_id: str, number: int | None = None) -> dict[str, Any]:
        """Return the plan, or the one that the n-th switch archived. Raises `MountPlanMissingError`."""
        ...

    async def read_messages(self, session_id: str) -> list[Message]: ...

    async def read_message_page(self, session_id: str, place: Place) -> MessagePage:
        """Return a part of the transcript, without reading all of it."""
        ...

    async def read_events(self, session_id: str, *, after_seq: int = 0) -> list[StoredEvent]: ...

    async def read_event_page(self, session_id: str, place: EventPlace) -> EventPage:
        """Return a part of the events, without reading all of them; `event_batches` reads on from there."""
        ...

    async def last_cursor(self, session_id: str) -> Cursor:
        """Return where the last stored event stands in its tree, the number is 0 when there is none."""
        ...

    async def last_events(self, session_ids: Sequence[str], names: Collection[str]) -> dict[str, StoredEvent]:
        """Return, for each of these sessions that has one, the last stored event with one of these names."""
        ...

    async def read_document(self, session_id: str, name: str) -> Any | None:
        """Return a named JSON value that belongs to the session, such as `context_messages`."""
        ...

    async def read_part(self, session_id: str, digest: str) -> bytes | None: ...

    async def read_parts(self, session_id: str) -> Mapping[str, bytes]:
        """Return all parts of the session's requests, by their hashes."""
        ...

    async def read_whole(self, session_id: str) -> NewSession:
        """Return everything that a session has at one moment, as `add` takes it."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[StoreSnapshot]:
        """Read all sessions as they are at one moment."""
        ...

    async def list(self, query: SessionQuery) -> SessionPage: ...

    async def search(self, text: str, *, limit: int = 50, owner: str | None = None) -> tuple[SearchHit, ...]: ...

    async def descendants(self, session_id: str) -> tuple[str, ...]:
        """Return the ids of the sessions below this one in its tree, parents before their children."""
        ...

    async def acquire(self, session_id: str, holder: Holder, *, take_over: bool = False) -> Hold:
        """Hold a session. One whose process is gone is taken over at once, a live one only with `take_over`."""
        ...

    async def release(self, hold: Hold) -> None:
        """Give a hold back; one that was lost, or is of a deleted session, is left alone."""
        ...

    async def holder_of(self, session_id: str) -> Hold | None:
        """Return the hold of a live process, None when the session is free."""
        ...

    async def abandoned(self) -> Sequence[str]:
        """Return the ids of the sessions that a process held which is gone."""
        ...

    async def append_messages(self, hold: Hold, messages: Iterable[Message], *, lasting: bool = False) -> None: ...

    async def append_events(
        self, hold: Hold, events: Iterable[StoredEvent], *, lasting: bool = False, append_id: str | None = None
    ) -> None:
        """Append events. After an `OutcomeUnknownError` they may be given again under the same `append_id`."""
        ...

    async def end_turn(self, hold: Hold, turn_id: str, events: Iterable[StoredEvent], **changes: Any) -> SessionRecord:
        """Append the last events of a turn and change the record, as one lasting step; returns the record.

        The last of the events names the turn and has the changes, from which a record that lacks them is brought up to
        date. It may be given again unchanged whatever became of it before: an end of this turn that is stored stays.
        """
        ...

    def try_append_events(self, hold: Hold, events: Iterable[StoredEvent]) -> bool:
        """Append events at once. Where that would take waiting nothing is appended, and the answer is False."""
        ...

    async def synchronise(self, hold: Hold) -> None:
        """Return when the events that were appended so far are on the disk."""
        ...

    async def replace_messages(self, hold: Hold, messages: Iterable[Message]) -> None:
        """Put another transcript in place of the whole one."""
        ...

    async def update(self, hold: Hold, **changes: Any) -> SessionRecord:
        """Change fields of the record; `revision` and `updated_at` follow."""
        ...

    async def switch_plan(
        self, hold: Hold, plan: Mapping[str, Any], documents: Mapping[str, Any], **changes: Any
    ) -> int:
        """Archive the plan, put another in its place with its documents and changes of the record, as one unit.

        Returns the number of the archived plan.
        """
        ...

    async def put_document(self, hold: Hold, name: str, value: Any) -> None: ...

    async def put_parts(self, hold: Hold, parts: Mapping[str, bytes]) -> None:
        """Keep parts of provider requests under their hashes; one that is there already is left as it is."""
        ...

    async def delete(self, hold: Hold) -> None:
        """Remove the session as a whole and for good; a crash leaves no half of it."""
        ...

    async def discard(self, hold: Hold) -> None:
        """Move the session into the trash as a whole; a crash leaves it in exactly one of the two places."""
        ...

    async def trash(self) -> tuple[TrashedSession, ...]:
        """Return the sessions that can be brought back, the last deleted first."""
        ...

    async def restore(self, session_id: str) -> None:
        """Bring a session back as it was, held by no one; of several of that id, the one deleted last.

        Raises:
            SessionNotFoundError: it is not in the trash.
            SessionExistsError: there is one of that id again.
        """
        ...

    async def purge(self, session_id: str, *, before: str | None = None) -> None:
        """Remove what is in the trash under an id for good, or what of it was deleted before a moment.

        Raises:
            SessionNotFoundError: nothing of it is in the trash.
        """
        ...

    async def read_trashed(self, trashed: TrashedSession) -> NewSession:
        """Return everything that a session in the trash has.

        Raises:
            SessionNotFoundError: it is not there.
        """
        ...

    async def add_trashed(self, new: NewSession, deleted_at: str) -> None:
        """Put a session into the trash that was deleted in another store; one of that id and moment stays."""
        ...

    def trashed_workspace(self, trashed: TrashedSession) -> Path:
        """Return where the files are that modules and checkpoints kept of a session in the trash."""
        ...

    async def join(self) -> str | None:
        """Return the id under which this process, and those that it starts, hold sessions; None where none is needed.

        A store that machines share knows by it who is still there; in files it is the incarnation of the daemon.
        """
        ...

    def serve_as(self, incarnation: str) -> None:
        """Hold sessions as the one daemon of this home, of the incarnation that its lock gave it."""
        ...

    def belong_to(self, member_id: str) -> None:
        """Hold sessions under the id of the process that started this one."""
        ...

    def workspace(self, session_id: str) -> Path:
        """Return the directory in which modules and checkpoints of this session keep files of their own."""
        ...

    async def tidy(self) -> None:
        """Remove what is left on this machine of sessions that were deleted elsewhere."""
        ...

    async def close(self) -> None:
        """Write what waits to be written and give back what is open."""
        ...


# A part of a conversation: its end, or what stands before or after a message.


_Message = dict[str, Any]


@dataclass(frozen=True)
class MessagePage:
    """Some messages, how many there are in all, and whether there are more in the direction that was asked for."""

    messages: Sequence[_Message]
    total: int
    has_more: bool


@dataclass(frozen=True)
class Place:
    """Where a page is: the last `limit` messages, those before one, or the first ones after one."""

    limit: int
    before: str | None = None
    after: str | None = None

    def page(self, messages: Sequence[_Message], fits: Callable[[_Message], bool] = lambda _: True) -> MessagePage:
        """Return the page of those messages of a conversation that fit; `before` and `after` may name any."""
        places = {message.get("id"): place for place, message in enumerate(messages)}
        begin = places.get(self.after, -1) + 1 if self.after else 0
        end = places.get(self.before, len(messages)) if self.before else len(messages)
        between = [message for message in messages[begin:end] if fits(message)]
        part = between[: self.limit] if self.after else between[-self.limit :]
        return MessagePage(part, sum(map(fits, messages)), has_more=len(part) < len(between))

    def read(self, path: Path) -> MessagePage:
        """Return the page of a transcript, of which no more is read than from its end to there."""
        return replace(self.page(read_since(path, _Passed(self))), total=count_lines(path))


class _Passed:
    """Hears messages from the last to the first, and says of which on none is needed; one more than wanted is."""

    def __init__(self, place: Place) -> None:
        self._awaited = {place.before, place.after} - {None, ""}
        self._wanted = 0 if place.after else place.limit + 1

    def __call__(self, message: _Message) -> bool:
        if self._awaited:
            self._awaited.discard(message.get("id"))
            return False
        self._wanted -= 1
        return self._wanted < 0
