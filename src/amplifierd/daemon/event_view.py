"""What a caller may see of everything that happens: their own sessions and their own work, or all of it."""

from __future__ import annotations

from .callers import Caller
from .published_event import PublishedEvent
from .session_access import SessionAccess


class EventView:
    """The view of one caller. What it shows is told at once where it is known whose it is."""

    def __init__(self, access: SessionAccess, caller: Caller) -> None:
        self._access, self._caller = access, caller

    @property
    def owner(self) -> str:
        return self._caller.streams_of

    def shows(self, event: PublishedEvent) -> bool | None:
        """Say whether an event may be seen; None when it has to be looked up whose session it is about."""
        if event.owners is not None:
            return any(self._caller.sees(owner) for owner in event.owners)
        return event.root_id is None or self._access.may_see(self._caller, event.root_id)

    async def shows_tree(self, root_id: str) -> bool:
        return await self._access.find_out(self._caller, root_id)
