"""Which sessions are there for a caller: their own, or all for an admin."""

from __future__ import annotations

import asyncio

from amplifierd.exceptions import SessionNotFoundError
from amplifierd.home import Home
from amplifierd.session_store.record import SessionRecord, checked_session_id

from .callers import Caller
from .event_hub import Visible
from .log_files import log_also_about


class SessionAccess:
    """Finds sessions for callers. Who owns a tree is remembered, for those who watch all events."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._owners: dict[str, str | None] = {}

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

    def forget(self, root_id: str) -> None:
        self._owners.pop(root_id, None)

    def visible_to(self, caller: Caller) -> Visible:
        return lambda root_id: caller.sees(self._owners.get(root_id))

    async def _read(self, session_id: str) -> SessionRecord:
        try:
            return await self._home.sessions.runtime.store.read(session_id)
        except SessionNotFoundError:  # it may be one of another application
            return await asyncio.to_thread(self._home.sessions.get, session_id)
