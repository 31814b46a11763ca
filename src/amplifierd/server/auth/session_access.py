"""Which sessions are there for a caller: their own, or all for an admin."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress

from amplifierd.exceptions import FormatUnsupportedError, SessionError, SessionNotFoundError
from amplifierd.server.events.published_event import PublishedEvent
from amplifierd.server.log_files import log_also_about
from amplifierd.sessions.home_sessions import Sessions
from amplifierd.store.record import SessionRecord, checked_session_id

from .callers import Caller

_MOST_OWNERS = 10_000
"""More than there are trees at work at a time; the owner of another one is read again."""


class SessionAccess:
    """Finds sessions for callers. Who owns a tree is remembered, for those who watch all events."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._owners: OrderedDict[str, str | None] = OrderedDict()

    async def get(self, caller: Caller, session_id: str) -> SessionRecord:
        """Return a session as it is stored.

        One that is not there and one that is not theirs are refused in the same words, which name no place.

        Raises:
            SessionNotFoundError: there is none of that id for this caller.
        """
        log_also_about(session_id=checked_session_id(session_id))
        record: SessionRecord | None = None
        with suppress(SessionNotFoundError):
            record = await self._read(session_id)
            self.remember(record.root_id, record.owner)
        if record is None or not caller.sees(record.owner) or not caller.reaches(record.working_dir):
            raise SessionNotFoundError(f"there is no session {session_id!r}", hint="GET /api/v1/sessions lists yours")
        return record

    async def existing(self, session_ids: Iterable[str]) -> list[SessionRecord]:
        """Return those of some sessions that are stored; one that was deleted a moment ago is left out."""
        found = []
        for session_id in session_ids:
            with suppress(SessionNotFoundError):
                found.append(await self._sessions.runtime.store.read(session_id))
        return found

    def remember(self, root_id: str, owner: str | None) -> None:
        """Remember the owner of a tree that was read or created, or whose id cannot be anyone else's."""
        self._owners[root_id] = owner
        self._owners.move_to_end(root_id)
        if len(self._owners) > _MOST_OWNERS:
            self._owners.popitem(last=False)

    def forget(self, root_id: str) -> None:
        self._owners.pop(root_id, None)

    def may_see(self, caller: Caller, root_id: str) -> bool | None:
        """True if a tree is there for a caller; None when it has to be looked up whose it is."""
        if caller.scope == "admin":
            return True
        return caller.sees(self._owners[root_id]) if root_id in self._owners else None

    async def find_out(self, caller: Caller, root_id: str) -> bool:
        """True if a tree is there for a caller; one that is gone or cannot be read is not."""
        known = self.may_see(caller, root_id)
        if known is not None:
            return known
        try:
            record = await self._read(root_id)
        except (SessionError, FormatUnsupportedError, OSError):
            return False
        self.remember(root_id, record.owner)
        return caller.sees(record.owner)

    async def _read(self, session_id: str) -> SessionRecord:
        try:
            return await self._sessions.runtime.store.read(session_id)
        except SessionNotFoundError:  # it may be one of another application
            return await self._sessions.reader.get(session_id)


class EventView:
    """The view of one caller. What it shows is told at once where it is known whose it is."""

    def __init__(self, access: SessionAccess, caller: Caller) -> None:
        self._access, self._caller = access, caller

    @property
    def owner(self) -> str:
        return self._caller.streams_of

    def shows(self, event: PublishedEvent) -> bool | None:
        """True if an event may be seen; None when it has to be looked up whose session it is about."""
        if event.owners is not None:
            return any(self._caller.sees(owner) for owner in event.owners)
        return event.root_id is None or self._access.may_see(self._caller, event.root_id)

    async def shows_tree(self, root_id: str) -> bool:
        return await self._access.find_out(self._caller, root_id)
