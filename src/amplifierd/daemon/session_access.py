"""Which sessions are there for a caller: their own, or all for an admin."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from amplifierd.exceptions import FormatUnsupportedError, SessionError, SessionNotFoundError
from amplifierd.home import Home
from amplifierd.session_store.record import SessionRecord, checked_session_id

from .callers import Caller
from .event_hub import Visible
from .log_files import log_also_about

_MOST_OWNERS = 10_000
"""More than there are trees at work at a time; the owner of another one is read again."""


class SessionAccess:
    """Finds sessions for callers. Who owns a tree is remembered, for those who watch all events."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._owners: OrderedDict[str, str | None] = OrderedDict()

    async def get(self, caller: Caller, session_id: str) -> SessionRecord:
        """Return a session as it is stored.

        Raises:
            SessionNotFoundError: there is none of that id for this caller.
        """
        log_also_about(session_id=checked_session_id(session_id))
        record = await self._read(session_id)
        self.remember(record.root_id, record.owner)
        if not caller.sees(record.owner):
            raise SessionNotFoundError(f"there is no session {session_id!r}", hint="GET /api/v1/sessions lists yours")
        return record

    def remember(self, root_id: str, owner: str | None) -> None:
        """Take note of whose tree one is: of one that was read, was created, or has an id that nobody else can have."""
        self._owners[root_id] = owner
        self._owners.move_to_end(root_id)
        if len(self._owners) > _MOST_OWNERS:
            self._owners.popitem(last=False)

    def forget(self, root_id: str) -> None:
        self._owners.pop(root_id, None)

    def visible_to(self, caller: Caller) -> Visible:
        if caller.scope == "admin":
            return lambda root_id: True
        return lambda root_id: caller.sees(self._owner_of(root_id))

    def _owner_of(self, root_id: str) -> str | None:
        if root_id not in self._owners:
            try:
                self.remember(root_id, self._home.sessions.get(root_id).owner)
            except (SessionError, FormatUnsupportedError, OSError):  # it is gone, or nobody can read it
                return None
        return self._owners[root_id]

    async def _read(self, session_id: str) -> SessionRecord:
        try:
            return await self._home.sessions.runtime.store.read(session_id)
        except SessionNotFoundError:  # it may be one of another application
            return await asyncio.to_thread(self._home.sessions.get, session_id)
