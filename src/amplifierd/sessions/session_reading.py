"""Reading stored sessions, those of other Amplifier applications on this machine included."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from amplifier_sessions.event_page import tree_page
from amplifier_sessions.session_query import page_of
from amplifierd.exceptions import SessionNotFoundError, SessionStateError
from amplifierd.session_store.protocol import (
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
)
from amplifierd.session_store.record import SessionRecord, checked_session_id

from .ecosystem import EcosystemSessions
from .secret_values import without_secrets

if TYPE_CHECKING:
    from .export import ReadableSessions
    from .stored_requests import StoredRequest


class SessionReading:
    """What only reads; nothing here needs a hold, and nothing is awaited."""

    def __init__(self, store: SessionStore, elsewhere: EcosystemSessions) -> None:
        self._store, self._elsewhere = store, elsewhere

    def list(self, query: SessionQuery | None = None, **filters: Any) -> SessionPage:
        """Return a page of sessions, the latest first; `filters` are fields of a `SessionQuery`."""
        wanted = query or SessionQuery(**filters)
        return now_or_in_thread(lambda: self._list(wanted))

    def get(self, session_id: str) -> SessionRecord:
        """Return a session as it is stored.

        Raises:
            SessionNotFoundError: there is none of that id.
        """
        return now_or_in_thread(lambda: self._read(session_id))

    def search(self, text: str, *, limit: int = 50) -> tuple[SearchHit, ...]:
        """Return the sessions whose name or messages contain the words of a text."""
        return now_or_in_thread(lambda: self._search(text, limit))

    def messages(self, session_id: str) -> Sequence[Message]:
        """Return the transcript of a session."""

        async def read() -> Sequence[Message]:
            source = await self._source_of(checked_session_id(session_id))
            return await source.read_messages(session_id)

        return now_or_in_thread(read)

    def message_page(self, session_id: str, place: Place) -> MessagePage:
        """Return a part of the transcript of a session."""

        async def read() -> MessagePage:
            source = await self._source_of(checked_session_id(session_id))
            if source is self._store:
                return await self._store.read_message_page(session_id, place)
            return place.page(await source.read_messages(session_id))

        return now_or_in_thread(read)

    def events(self, session_id: str, *, after_seq: int = 0) -> Sequence[StoredEvent]:
        """Return what happened in a session, in order."""

        async def read() -> Sequence[StoredEvent]:
            source = await self._source_of(checked_session_id(session_id))
            return await source.read_events(session_id, after_seq=after_seq)

        return now_or_in_thread(read)

    def event_page(self, session_id: str, place: EventPlace, *, include_children: bool = False) -> EventPage:
        """Return a part of what happened in a session, and with `include_children` in those below it, in order."""

        async def read() -> EventPage:
            source = await self._source_of(checked_session_id(session_id))
            below = await source.descendants(session_id) if include_children else ()
            if not below:
                return await source.read_event_page(session_id, place)
            return await tree_page(source.read_event_page, (session_id, *below), place)

        return now_or_in_thread(read)

    def plan(self, session_id: str) -> dict[str, Any]:
        """Return the mount plan of a session, without keys that may have been written into it.

        Raises:
            MountPlanMissingError: it has none.
        """

        async def read() -> dict[str, Any]:
            source = await self._source_of(checked_session_id(session_id))
            return without_secrets(await source.read_plan(session_id))

        return now_or_in_thread(read)

    def requests(self, session_id: str) -> Sequence[StoredRequest]:
        """Return what was sent to providers, request by request, each part with its origin."""
        from .stored_requests import requests  # loaded when requests are looked at

        return now_or_in_thread(lambda: requests(self._store, checked_session_id(session_id)))

    def request(self, session_id: str, request_id: str) -> StoredRequest:
        """Return one request, with the contents of its parts."""
        from .stored_requests import read_request

        return now_or_in_thread(lambda: read_request(self._store, checked_session_id(session_id), request_id))

    def holder(self, session_id: str) -> Hold | None:
        """Return who holds a session, None when it is free."""
        return now_or_in_thread(lambda: self._store.holder_of(checked_session_id(session_id)))

    def children(self, session_id: str) -> tuple[SessionRecord, ...]:
        """Return the sessions below one, parents before their children; one that is deleted meanwhile is left out."""

        async def read() -> tuple[SessionRecord, ...]:
            source = await self._source_of(checked_session_id(session_id))
            found = []
            for below in await source.descendants(session_id):
                with suppress(SessionNotFoundError):
                    found.append(await source.read(below))
            return tuple(found)

        return now_or_in_thread(read)

    def uses_profile(self, profile_id: str) -> bool:
        """Say whether a session that has not ended runs a profile."""
        name = str(profile_id)
        wanted = [SessionQuery(profile_name=name, status=status, limit=1) for status in ("active", "created")]
        return any(now_or_in_thread(partial(self._store.list, each)).total for each in wanted)

    async def _read(self, session_id: str) -> SessionRecord:
        """Return a session as it is stored; what is ours comes first."""
        try:
            return await self._store.read(session_id)
        except SessionNotFoundError as error:
            try:
                return await self._elsewhere.read(session_id)
            except SessionNotFoundError:
                raise error from None

    async def _read_own(self, session_id: str) -> SessionRecord:
        """Return a session that is to be changed.

        Raises:
            SessionStateError: another application keeps it, so that it is only read here.
        """
        record = await self._read(session_id)
        if record.origin is not None:
            raise SessionStateError(
                f"session {session_id} belongs to another application ({record.origin}) and is only read here",
                hint="fork it, or send it a prompt: its first turn here copies it",
            )
        return record

    async def _source_of(self, session_id: str) -> ReadableSessions:
        """Return where a session is kept; what is ours comes first."""
        try:
            await self._store.read(session_id)
        except SessionNotFoundError:
            try:
                await self._elsewhere.read(session_id)
            except SessionNotFoundError:
                pass
            else:
                return self._elsewhere
        return self._store

    async def _list(self, wanted: SessionQuery) -> SessionPage:
        """Return a page of both kinds together."""
        first = replace(wanted, offset=0, limit=wanted.offset + wanted.limit)
        others = await self._elsewhere.list(first)
        if not others.total:
            return await self._store.list(wanted)
        ours = await self._store.list(first)
        return SessionPage(tuple(page_of([*ours.sessions, *others.sessions], wanted)), ours.total + others.total)

    async def _search(self, text: str, limit: int) -> tuple[SearchHit, ...]:
        ours = await self._store.search(text, limit=limit)
        return (*ours, *await self._elsewhere.search(text, limit=limit - len(ours))) if len(ours) < limit else ours


T = TypeVar("T")


def now_or_in_thread(begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Return what a coroutine returns; it runs on a loop of its own, in a thread where this one has a running loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(begin())
    with ThreadPoolExecutor(max_workers=1) as pool:
        return pool.submit(lambda: asyncio.run(begin())).result()
