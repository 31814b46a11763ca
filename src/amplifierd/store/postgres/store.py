"""Sessions in PostgreSQL: the store that the processes of many machines share."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from psycopg import AsyncConnection

from amplifier_sessions.session_directory import is_session_id
from amplifier_system.tasks import Supervisor, run_to_end, start_task
from amplifier_system.threads import Stop, in_thread
from amplifierd.exceptions import StoreUnavailableError
from amplifierd.paths import Paths
from amplifierd.store.hold import Hold, Holder
from amplifierd.store.parts_file import checked_digest
from amplifierd.store.protocol import (
    Cursor,
    EventPage,
    EventPlace,
    Message,
    MessagePage,
    NewSession,
    Place,
    SearchHit,
    SessionPage,
    SessionQuery,
    StoredEvent,
    StoreSnapshot,
    TrashedSession,
)
from amplifierd.store.record import SessionRecord, TreePlace, checked_session_id
from amplifierd.store.session_files import document_file_name
from amplifierd.store_address import StoreAddress

from .database import PATIENCE_S, Database
from .group_commit import MOST_TOGETHER, GroupCommit
from .held_sessions import HeldSessions
from .holds import Holds
from .members import Members, Notifications
from .new_sessions import Creation, creation_values
from .removal import Removal
from .row_changes import Appends, SessionChanges
from .schema import OF_A_SESSION
from .session_lists import SessionLists
from .session_reads import SessionReads
from .session_rows import event_values, json_text, message_values
from .shared_values import SharedValues
from .snapshot import open_snapshot, read_at_once
from .workspaces import Workspaces

logger = logging.getLogger(__name__)


class PostgresStore:
    """The sessions of one database, from any event loop of this process.

    What was written is on the database's disk, and on that of its synchronous standbys, when a call returns. `paths`
    are those of the home in which modules and checkpoints keep files of their own; these stay on this machine.
    `together` says how many writes share a commit; with `loop`, the database is worked with in that event loop
    instead of in a thread of its own.
    """

    def __init__(
        self,
        paths: Paths,
        address: StoreAddress,
        *,
        program: str = "library",
        patience_s: float = PATIENCE_S,
        together: int = MOST_TOGETHER,
        connection_type: type[AsyncConnection] = AsyncConnection,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._address, self._workspaces = address, Workspaces(paths.workspaces)
        self.database = Database(
            address, program=program, patience_s=patience_s, connection_type=connection_type, loop=loop
        )
        self.notifications = Notifications(self.database)
        self.supervisor = Supervisor()
        self.members = Members(self.database, self.notifications, self.supervisor, program)
        self.shared = SharedValues(self.database)
        self._writes = writes = GroupCommit(self.database, most=together)
        sessions = HeldSessions(self.database, writes)
        self._holds = Holds(self.database, self.members, sessions, writes)
        self._creation = Creation(self.members, sessions, writes)
        self._appends = Appends(sessions)
        self._changes = SessionChanges(sessions)
        self._removal = Removal(self.database, sessions)
        self._reads = SessionReads(self.database)
        self._lists = SessionLists(self.database)

    @property
    def address(self) -> StoreAddress:
        return self._address

    async def check(self) -> None:
        await self.existing([])

    async def status(self) -> dict[str, Any]:
        return {**await status_of(self.database), "abandoned": len(await self.abandoned())}

    async def create(self, new: NewSession, holder: Holder) -> Hold:
        checked_session_id(new.record.session_id)
        creating = start_task(self.database.call(self._creation.create(new, creation_values(new), holder)))
        try:
            return await run_to_end(creating)
        except asyncio.CancelledError:
            if _succeeded(creating):  # no one will learn of it
                await run_to_end(self.delete(creating.result()))
            raise

    async def add(self, new: NewSession, holder: Holder) -> None:
        session_id = checked_session_id(new.record.session_id)
        adding = start_task(self.database.call(self._creation.add(new, creation_values(new))))
        try:
            await run_to_end(adding)
        except asyncio.CancelledError:
            if _succeeded(adding):
                await run_to_end(self._remove(session_id, holder))
            raise

    async def _remove(self, session_id: str, holder: Holder) -> None:
        await self.delete(await self.acquire(session_id, holder))

    async def read(self, session_id: str) -> SessionRecord:
        return await self.database.call(self._reads.record(checked_session_id(session_id)))

    async def existing(self, session_ids: Sequence[str]) -> Collection[str]:
        wanted = [checked_session_id(session_id) for session_id in session_ids]
        return await self.database.call(self._reads.existing(wanted))

    async def read_plan(self, session_id: str, number: int | None = None) -> dict[str, Any]:
        return await self.database.call(self._reads.plan(checked_session_id(session_id), number))

    async def read_messages(self, session_id: str) -> list[Message]:
        return await self.database.call(self._reads.messages(checked_session_id(session_id)))

    async def read_message_page(self, session_id: str, place: Place) -> MessagePage:
        return await self.database.call(self._reads.message_page(checked_session_id(session_id), place))

    async def read_events(self, session_id: str, *, after_seq: int = 0) -> list[StoredEvent]:
        return await self.database.call(self._reads.events(checked_session_id(session_id), after_seq))

    async def read_event_page(self, session_id: str, place: EventPlace) -> EventPage:
        return await self.database.call(self._reads.event_page(checked_session_id(session_id), place))

    async def last_cursor(self, session_id: str) -> Cursor:
        return await self.database.call(self._reads.last_cursor(checked_session_id(session_id)))

    async def last_events(self, session_ids: Sequence[str], names: Collection[str]) -> dict[str, StoredEvent]:
        wanted = [checked_session_id(session_id) for session_id in session_ids]
        return await self.database.call(self._reads.last_events(wanted, names))

    async def read_document(self, session_id: str, name: str) -> Any | None:
        document_file_name(name)
        return await self.database.call(self._reads.document(checked_session_id(session_id), name))

    async def read_part(self, session_id: str, digest: str) -> bytes | None:
        return await self.database.call(self._reads.part(checked_session_id(session_id), digest))

    async def read_parts(self, session_id: str) -> dict[str, bytes]:
        return await self.database.call(self._reads.parts(checked_session_id(session_id)))

    async def read_whole(self, session_id: str) -> NewSession:
        return await self.database.call(read_at_once(self.database, checked_session_id(session_id)))

    def snapshot(self) -> AbstractAsyncContextManager[StoreSnapshot]:
        return open_snapshot(self.database)

    async def list(self, query: SessionQuery) -> SessionPage:
        return await self.database.call(self._lists.page(query))

    async def search(self, text: str, *, limit: int = 50, owner: str | None = None) -> tuple[SearchHit, ...]:
        return await self.database.call(self._lists.hits(text, limit=limit, owner=owner))

    async def descendants(self, session_id: str) -> tuple[str, ...]:
        return await self.database.call(self._lists.descendants(checked_session_id(session_id)))

    async def acquire(self, session_id: str, holder: Holder, *, take_over: bool = False) -> Hold:
        checked_session_id(session_id)
        work = self._holds.acquire(session_id, holder, take_over=take_over)
        acquiring = start_task(self.database.call(work))
        try:
            return await run_to_end(acquiring)
        except asyncio.CancelledError:
            if _succeeded(acquiring):  # no one will learn of it
                await run_to_end(self.release(acquiring.result()))
            raise

    async def release(self, hold: Hold) -> None:
        try:
            await self.database.finish(self._holds.release(hold))
        except StoreUnavailableError as error:
            logger.warning("session %s stays held until this process ends: %s", hold.session_id, error)

    async def holder_of(self, session_id: str) -> Hold | None:
        return await self.database.call(self._holds.find(checked_session_id(session_id)))

    async def abandoned(self) -> Sequence[str]:
        return await self.database.call(self._holds.abandoned())

    async def places(self, session_ids: Collection[str]) -> dict[str, TreePlace]:
        """Return which members hold some sessions; one that was never held, or that is gone, is left out."""
        return await self.database.call(self._holds.places(session_ids))

    async def orphaned(self) -> dict[str, int]:
        """Return sessions that are held by members which are gone, with their epochs; of many, not all at once."""
        return await self.database.call(self._holds.orphaned())

    async def append_messages(self, hold: Hold, messages: Iterable[Message], *, lasting: bool = False) -> None:
        values = message_values([*messages])
        if values["messages"]:
            await self.database.finish(self._appends.append(hold, "messages", values))

    async def append_events(
        self, hold: Hold, events: Iterable[StoredEvent], *, lasting: bool = False, append_id: str | None = None
    ) -> None:
        values = event_values([*events])
        if values["events"]:
            await self.database.finish(self._appends.append(hold, "events", values, append_id))

    async def end_turn(self, hold: Hold, turn_id: str, events: Iterable[StoredEvent], **changes: Any) -> SessionRecord:
        values = event_values([*events])
        return await self.database.finish(self._changes.end_turn(hold, turn_id, values, changes))

    def try_append_events(self, hold: Hold, events: Iterable[StoredEvent]) -> bool:
        return not [*events]  # anything else takes waiting

    async def synchronise(self, hold: Hold) -> None:
        """Return at once: what was appended is on the disk."""

    async def replace_messages(self, hold: Hold, messages: Iterable[Message]) -> None:
        await self.database.finish(self._appends.replace_messages(hold, message_values([*messages])))

    async def update(self, hold: Hold, **changes: Any) -> SessionRecord:
        return await self.database.finish(self._changes.update(hold, changes))

    async def switch_plan(
        self, hold: Hold, plan: Mapping[str, Any], documents: Mapping[str, Any], **changes: Any
    ) -> int:
        for name in documents:
            document_file_name(name)
        values = {
            "plan": json_text(plan),
            "document_names": [*documents],
            "documents": [json_text(value) for value in documents.values()],
        }
        return await self.database.finish(self._changes.switch_plan(hold, changes, values))

    async def put_document(self, hold: Hold, name: str, value: Any) -> None:
        document_file_name(name)
        await self.database.finish(self._changes.put_document(hold, name, json_text(value)))

    async def put_parts(self, hold: Hold, parts: Mapping[str, bytes]) -> None:
        checked = {checked_digest(digest): content for digest, content in parts.items()}
        await self.database.finish(self._changes.put_parts(hold, checked))

    async def delete(self, hold: Hold) -> None:
        await self.database.finish(self._removal.delete(hold))
        await in_thread(lambda _: self._workspaces.remove(hold.session_id))

    async def discard(self, hold: Hold) -> None:
        deleted_at = await self.database.finish(self._removal.discard(hold))
        await in_thread(lambda _: self._workspaces.discard(hold.session_id, deleted_at))

    async def trash(self) -> tuple[TrashedSession, ...]:
        return await self.database.call(self._removal.trash())

    async def restore(self, session_id: str) -> None:
        deleted_at = await self.database.finish(self._removal.restore(checked_session_id(session_id)))
        await in_thread(lambda _: self._workspaces.restore(session_id, deleted_at))

    async def purge(self, session_id: str, *, before: str | None = None) -> None:
        await self.database.finish(self._removal.purge(checked_session_id(session_id), before))
        await in_thread(lambda _: self._workspaces.purge(session_id, before))

    async def read_trashed(self, trashed: TrashedSession) -> NewSession:
        session_id = checked_session_id(trashed.record.session_id)
        return await self.database.call(read_at_once(self.database, session_id, trashed.deleted_at))

    async def add_trashed(self, new: NewSession, deleted_at: str) -> None:
        checked_session_id(new.record.session_id)
        await self.database.finish(self._creation.add_trashed(new, creation_values(new), deleted_at))

    def trashed_workspace(self, trashed: TrashedSession) -> Path:
        return self._workspaces.trashed(trashed.record.session_id, trashed.deleted_at)

    async def join(self) -> str:
        return await self.database.finish(self.members.require())

    def belong_to(self, member_id: str) -> None:
        self.members.belong_to(member_id)

    def serve_as(self, incarnation: str) -> None:
        """Hold sessions as a member, as always."""

    def workspace(self, session_id: str) -> Path:
        return self._workspaces.place(checked_session_id(session_id))

    async def tidy(self) -> None:
        names = [name for name in await in_thread(lambda _: self._workspaces.names()) if is_session_id(name)]
        known = await self.existing(names)

        def remove(stop: Stop) -> None:
            for name in set(names) - set(known):
                stop.check()
                self._workspaces.remove(name)

        await in_thread(remove)

    async def close(self) -> None:
        if self.database.is_closed:
            return
        await self.database.finish(self._writes.settle())
        await self.members.leave()
        await self.database.close()


def _succeeded(work: asyncio.Future[Any]) -> bool:
    return work.done() and not work.cancelled() and work.exception() is None


_TABLES = ("sessions", *OF_A_SESSION)
_COUNTS = """
SELECT (SELECT format_version FROM format),
    (SELECT count(*) FROM sessions WHERE deleted_at IS NULL),
    (SELECT count(*) FROM sessions WHERE deleted_at IS NOT NULL),
    (SELECT count(*) FROM holds WHERE holder IS NOT NULL),
    (SELECT count(*) FROM members WHERE state IN ('active', 'draining') AND lease_until > now()),
    (SELECT sum(pg_total_relation_size(name::regclass)) FROM unnest(%s::text[]) AS name)::bigint,
    current_setting('server_version'), current_setting('fsync'), current_setting('synchronous_commit'),
    current_setting('synchronous_standby_names')
"""


async def status_of(database: Database) -> dict[str, Any]:
    async def select(connection: AsyncConnection) -> dict[str, Any]:
        row = await (await connection.execute(_COUNTS, [list(_TABLES)])).fetchone()
        assert row is not None
        began = time.perf_counter()
        await connection.execute("SELECT 1")
        took = time.perf_counter() - began
        version, sessions, deleted, held, members, size, server, fsync, commit, standbys = row
        return {
            "store": "postgresql",
            "place": str(database),
            "server": f"PostgreSQL {server}",
            "format": version,
            "sessions": sessions,
            "deleted": deleted,
            "held": held,
            "members": members,
            "bytes": size,
            "round_trip_ms": round(took * 1000, 2),
            "synchronous_standbys": standbys or None,
            "warnings": _warnings(fsync, commit),
        }

    return await database.read(select)


def _warnings(fsync: str, commit: str) -> list[str]:
    """Return what keeps the server from the promise that what was shown is stored."""
    found = []
    if fsync == "off":
        found.append("fsync is off: a power failure can destroy the database")
    if commit in ("off", "local"):
        found.append(f"synchronous_commit is {commit}: what was shown can be lost when the server fails")
    return found
