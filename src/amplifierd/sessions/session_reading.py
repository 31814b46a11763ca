"""Reading stored sessions, those of other Amplifier applications on this machine included."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_sessions.event_page import tree_page
from amplifier_sessions.session_query import page_of
from amplifierd.exceptions import SessionNotFoundError, SessionStateError
from amplifierd.sessions.recordings.ecosystem import EcosystemSessions
from amplifierd.store.protocol import (
    EventPage,
    EventPlace,
    Hold,
    Message,
    MessagePage,
    Place,
    SearchHit,
    SessionPage,
    SessionQuery,
    SessionStore,
    StoredEvent,
    TrashedSession,
)
from amplifierd.store.record import SessionRecord, checked_session_id

from .secret_values import without_secrets

if TYPE_CHECKING:
    from amplifierd.sessions.recordings.export import ReadableSessions
    from amplifierd.sessions.recordings.stored_requests import StoredRequest


class SessionReader:
    """Reads sessions of this home and of other applications; nothing here needs a hold."""

    def __init__(self, store: SessionStore, elsewhere: EcosystemSessions) -> None:
        self._store, self.elsewhere = store, elsewhere

    async def list(self, query: SessionQuery | None = None, **filters: Any) -> SessionPage:
        """A page of sessions, the latest first; `filters` are fields of a `SessionQuery`."""
        wanted = query or SessionQuery(**filters)
        first = replace(wanted, offset=0, limit=wanted.offset + wanted.limit)
        others = await self.elsewhere.list(first)
        if not others.total:
            return await self._store.list(wanted)
        ours = await self._store.list(first)
        return SessionPage(tuple(page_of([*ours.sessions, *others.sessions], wanted)), ours.total + others.total)

    async def get(self, session_id: str) -> SessionRecord:
        """A session as it is stored; what is ours comes first.

        Raises:
            SessionNotFoundError: there is none of that id.
        """
        try:
            return await self._store.read(session_id)
        except SessionNotFoundError as error:
            try:
                return await self.elsewhere.read(session_id)
            except SessionNotFoundError:
                raise error from None

    async def own(self, session_id: str) -> SessionRecord:
        """A session that is to be changed.

        Raises:
            SessionStateError: another application keeps it, so that it is only read here.
        """
        record = await self.get(session_id)
        if record.origin is not None:
            raise SessionStateError(
                f"session {session_id} belongs to another application ({record.origin}) and is only read here",
                hint="fork it, or send it a prompt: its first turn here copies it",
            )
        return record

    async def source_of(self, session_id: str) -> ReadableSessions:
        """The place where a session is kept; what is ours comes first."""
        try:
            await self._store.read(session_id)
        except SessionNotFoundError:
            try:
                await self.elsewhere.read(session_id)
            except SessionNotFoundError:
                pass
            else:
                return self.elsewhere
        return self._store

    async def search(self, text: str, *, limit: int = 50) -> tuple[SearchHit, ...]:
        """The sessions whose name or messages contain the words of a text."""
        ours = await self._store.search(text, limit=limit)
        return (*ours, *await self.elsewhere.search(text, limit=limit - len(ours))) if len(ours) < limit else ours

    async def messages(self, session_id: str) -> Sequence[Message]:
        """The transcript of a session."""
        source = await self.source_of(checked_session_id(session_id))
        return await source.read_messages(session_id)

    async def message_page(self, session_id: str, place: Place) -> MessagePage:
        """A part of the transcript of a session."""
        source = await self.source_of(checked_session_id(session_id))
        if source is self._store:
            return await self._store.read_message_page(session_id, place)
        return place.page(await source.read_messages(session_id))

    async def events(self, session_id: str, *, after_seq: int = 0) -> Sequence[StoredEvent]:
        """The events of a session, in order."""
        source = await self.source_of(checked_session_id(session_id))
        return await source.read_events(session_id, after_seq=after_seq)

    async def event_page(self, session_id: str, place: EventPlace, *, include_children: bool = False) -> EventPage:
        """A part of the events of a session, and with `include_children` of those below it, in order."""
        source = await self.source_of(checked_session_id(session_id))
        below = await source.descendants(session_id) if include_children else ()
        if not below:
            return await source.read_event_page(session_id, place)
        return await tree_page(source.read_event_page, (session_id, *below), place)

    async def plan(self, session_id: str) -> dict[str, Any]:
        """The mount plan of a session, without keys that may have been written into it.

        Raises:
            MountPlanMissingError: it has none.
        """
        source = await self.source_of(checked_session_id(session_id))
        return without_secrets(await source.read_plan(session_id))

    async def requests(self, session_id: str) -> Sequence[StoredRequest]:
        """The requests that were sent to providers, each part with its origin."""
        from amplifierd.sessions.recordings.stored_requests import requests  # loaded when requests are looked at

        return await requests(self._store, checked_session_id(session_id))

    async def request(self, session_id: str, request_id: str) -> StoredRequest:
        """One request, with the contents of its parts."""
        from amplifierd.sessions.recordings.stored_requests import read_request

        return await read_request(self._store, checked_session_id(session_id), request_id)

    async def holder(self, session_id: str) -> Hold | None:
        """The hold of a session, None when it is free."""
        return await self._store.holder_of(checked_session_id(session_id))

    async def children(self, session_id: str) -> tuple[SessionRecord, ...]:
        """The sessions below one, parents before their children; one that is deleted meanwhile is omitted."""
        source = await self.source_of(checked_session_id(session_id))
        found = []
        for below in await source.descendants(session_id):
            with suppress(SessionNotFoundError):
                found.append(await source.read(below))
        return tuple(found)

    async def uses_profile(self, profile_id: str) -> bool:
        """True if a session that has not ended runs a profile."""
        for status in ("active", "created"):
            if (await self._store.list(SessionQuery(profile_name=str(profile_id), status=status, limit=1))).total:
                return True
        return False

    async def deleted(self) -> tuple[TrashedSession, ...]:
        """The sessions that can be restored, the last deleted first."""
        return await self._store.trash()


T = TypeVar("T")


class PlainCalls:
    """Runs coroutines for callers that do not await, on one event loop of its own where theirs is running."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine; the caller's thread waits for it."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        return asyncio.run_coroutine_threadsafe(work, self._own_loop()).result()

    def _own_loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():  # a thread does not live on in a forked process
                self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
                threading.Thread(target=self._loop.run_forever, name="plain-calls", daemon=True).start()
            return self._loop


plain_calls = PlainCalls()
