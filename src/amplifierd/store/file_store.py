"""Sessions in files: one directory each, and nothing but files is the truth."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from amplifier_foundation.sources import Progress
from amplifier_sessions.event_file import EVENTS
from amplifier_sessions.session_directory import METADATA, TRANSCRIPT
from amplifier_system.tasks import run_to_end
from amplifier_system.threads import ShortWork, Stop, in_thread
from amplifierd.exceptions import (
    HoldLostError,
    SessionError,
    SessionExistsError,
    SessionNotFoundError,
    StoreClosedError,
    StoreFullError,
)
from amplifierd.os_errors import FULL
from amplifierd.paths import Paths
from amplifierd.store_address import StoreAddress

from .file_listing import session_names
from .hold import FREE, Hold, Holder, fence
from .index_database import check_index_format
from .json_lines import encoded_file, encoded_lines, find_last, read_last
from .parts_file import PartsFile
from .process_locks import ProcessLocks
from .protocol import (
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
from .record import SessionRecord, checked_session_id, now
from .session_files import GATE, HOLD, PARTS, SessionFiles, document_file_name
from .session_index import SessionIndex
from .session_writer import SessionWriter, find_hold
from .staging import create_directory, remove_leftovers
from .trash import Trash
from .whole_session import read_whole, session_contents

logger = logging.getLogger(__name__)

T = TypeVar("T")

_MOST_OPEN = 64  # sessions whose files stay open; each has up to four descriptors
_MOST_KNOWN = 1024  # sessions whose paths are not put together again
_ON_LOOP_BYTES = 1 << 18  # more is written in a thread
_READ_ON_LOOP_BYTES = 1 << 16  # a record is read for nearly every request: getting it from a thread takes much longer


class FileStore:
    """The store of one home, with a directory for each session.

    It is used from one event loop at a time. Any number of processes may have stores of the same home.
    """

    def __init__(self, paths: Paths, *, progress: Progress | None = None) -> None:
        self._sessions, self._index_file = paths.sessions, paths.index_file
        self._trash = Trash(paths.sessions)
        self._locks = ProcessLocks(paths.run)
        self._disk = ShortWork()
        self._index = SessionIndex(paths, progress)
        self._writers: OrderedDict[str, SessionWriter] = OrderedDict()
        self._is_closed = False
        self._files = lru_cache(maxsize=_MOST_KNOWN)(self._files_of)
        remove_leftovers(paths.sessions)
        self._trash.remove_leftovers()

    @property
    def address(self) -> StoreAddress:
        return StoreAddress()

    async def check(self) -> None:
        await in_thread(lambda _: check_index_format(self._index_file))

    async def status(self) -> dict[str, Any]:
        sessions = await self.session_ids()
        return {
            "store": "files",
            "place": str(self._sessions),
            "sessions": len(sessions),
            "deleted": len(await self.trash()),
            "abandoned": len(await self.abandoned()),
        }

    async def create(self, new: NewSession, holder: Holder) -> Hold:
        session_id, incarnation = checked_session_id(new.record.session_id), self._locks.incarnation
        hold = Hold(session_id, self._locks.marked(holder), epoch=1, since=now(), member_id=incarnation)
        held = {GATE: hold.fence, HOLD: encoded_file(hold.to_dict())}
        await self._create(new, held, lambda: self.delete(hold))
        return hold

    async def add(self, new: NewSession, holder: Holder) -> None:
        session_id = checked_session_id(new.record.session_id)

        async def remove() -> None:
            await self.delete(await self.acquire(session_id, holder))

        await self._create(new, {GATE: fence(0, FREE)}, remove)

    async def _create(
        self, new: NewSession, fenced: Mapping[str, bytes], remove: Callable[[], Awaitable[None]]
    ) -> None:
        """Store a session, `fenced` by its gate and its holder; `remove` takes it away again."""
        session_id = new.record.session_id
        contents = {**fenced, **session_contents(new)}
        self._forget(session_id)
        created = False

        def work() -> None:
            nonlocal created
            create_directory(self._sessions, session_id, contents)
            created = True
            self._files(session_id).index_events()

        try:
            await in_thread(lambda _: work())
        except asyncio.CancelledError:
            if created:  # no one will learn of it
                await run_to_end(remove())
            raise
        except FileExistsError:
            raise SessionExistsError(
                f"there is already a session {session_id!r} in {self._sessions}", hint="choose another id"
            ) from None
        except OSError as error:
            raise (StoreFullError if error.errno in FULL else SessionError)(
                f"session {session_id!r} cannot be created, and nothing is left behind: {error}",
                hint=f"make {self._sessions} writable, or room on its disk",
            ) from error
        self._index.changed(session_id)

    async def read(self, session_id: str) -> SessionRecord:
        files = self._files(session_id)
        if files.size(METADATA) <= _READ_ON_LOOP_BYTES:
            return files.read_record()
        return await in_thread(lambda _: files.read_record())

    async def existing(self, session_ids: Sequence[str]) -> Collection[str]:
        wanted = [self._files(session_id) for session_id in session_ids]
        return await in_thread(lambda _: {files.session_id for files in wanted if files.directory.exists()})

    async def read_plan(self, session_id: str, number: int | None = None) -> dict[str, Any]:
        files = self._files(session_id)
        return await in_thread(lambda _: files.read_plan(number))

    async def read_messages(self, session_id: str) -> list[Message]:
        files = self._files(session_id)
        return await in_thread(lambda _: files.read_lines(TRANSCRIPT))

    async def read_message_page(self, session_id: str, place: Place) -> MessagePage:
        files = self._files(session_id)
        return await in_thread(lambda _: files.read_message_page(place))

    async def read_events(self, session_id: str, *, after_seq: int = 0) -> list[StoredEvent]:
        files = self._files(session_id)
        return await in_thread(lambda _: files.read_events(after_seq))

    async def read_event_page(self, session_id: str, place: EventPlace) -> EventPage:
        files = self._files(session_id)
        return await in_thread(lambda _: files.read_event_page(place))

    async def last_cursor(self, session_id: str) -> Cursor:
        files = self._files(session_id)
        last = await in_thread(lambda _: read_last(files.directory / EVENTS))
        return Cursor.of_line(last or {})

    async def last_events(self, session_ids: Sequence[str], names: Collection[str]) -> dict[str, StoredEvent]:
        def find(session_id: str, stop: Stop) -> StoredEvent | None:
            stop.check()
            with suppress(OSError):  # the process that opens that session is told what is wrong with its file
                return find_last(self._files(session_id).path(EVENTS), lambda event: event.get("event") in names)
            return None

        def work(stop: Stop) -> dict[str, StoredEvent]:
            found = ((session_id, find(session_id, stop)) for session_id in session_ids)
            return {session_id: event for session_id, event in found if event is not None}

        return await in_thread(work)

    async def read_document(self, session_id: str, name: str) -> Any | None:
        files = self._files(session_id)
        return await in_thread(lambda _: files.read_document(name))

    async def read_part(self, session_id: str, digest: str) -> bytes | None:
        files = self._files(session_id)
        files.check_exists()
        return await in_thread(lambda _: PartsFile(files.directory / PARTS).find(digest))

    async def read_parts(self, session_id: str) -> Mapping[str, bytes]:
        files = self._files(session_id)
        files.check_exists()
        return await in_thread(lambda _: PartsFile(files.directory / PARTS).read_all())

    async def read_whole(self, session_id: str) -> NewSession:
        files = self._files(session_id)
        return await in_thread(lambda _: read_whole(files))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[StoreSnapshot]:
        yield self

    async def session_ids(self) -> Sequence[str]:
        return await in_thread(lambda _: sorted(session_names(self._sessions)))

    async def list(self, query: SessionQuery) -> SessionPage:
        return await in_thread(lambda stop: self._index.page(query, stop))

    async def search(self, text: str, *, limit: int = 50, owner: str | None = None) -> tuple[SearchHit, ...]:
        return await in_thread(lambda stop: self._index.hits(text, limit=limit, owner=owner, stop=stop))

    async def descendants(self, session_id: str) -> tuple[str, ...]:
        files = self._files(session_id)
        return await in_thread(lambda stop: self._index.descendants(files.read_record(), stop))

    async def acquire(self, session_id: str, holder: Holder, *, take_over: bool = False) -> Hold:
        writer = self._writer(session_id)
        acquired: list[Hold] = []
        try:
            own = self._locks.marked(holder)
            await writer.in_turn(lambda: acquired.append(writer.acquire(own, take_over=take_over)))
        except asyncio.CancelledError:
            if acquired:  # no one will learn of it
                await run_to_end(self.release(acquired[0]))
            raise
        self._index.changed(session_id)  # what a killed holder wrote last may not be in it
        return acquired[0]

    async def release(self, hold: Hold) -> None:
        try:
            await self._write(hold, lambda writer: writer.release(hold))
        except (HoldLostError, SessionNotFoundError):
            pass
        except SessionError as error:
            self._locks.give_up(hold)
            logger.warning("session %s is not in use, and for others still held: %s", hold.session_id, error)

    async def holder_of(self, session_id: str) -> Hold | None:
        files = self._files(session_id)
        return await in_thread(lambda _: self._find_live_hold(files))

    async def abandoned(self) -> Sequence[str]:
        def work(stop: Stop) -> list[str]:
            return [name for name in session_names(self._sessions) if self._is_abandoned(self._files(name), stop)]

        return await in_thread(work)

    async def append_messages(self, hold: Hold, messages: Iterable[Message], *, lasting: bool = False) -> None:
        await self._append(hold, TRANSCRIPT, encoded_lines(messages), lasting)

    async def append_events(
        self, hold: Hold, events: Iterable[StoredEvent], *, lasting: bool = False, append_id: str | None = None
    ) -> None:
        await self._append(hold, EVENTS, encoded_lines(events), lasting)  # one that fails has left nothing

    async def end_turn(self, hold: Hold, turn_id: str, events: Iterable[StoredEvent], **changes: Any) -> SessionRecord:
        data = encoded_lines(events)
        record = await self._write_at_once(hold, lambda writer: writer.end_turn(hold, turn_id, data, changes))
        self._index.changed(hold.session_id)
        return record

    def try_append_events(self, hold: Hold, events: Iterable[StoredEvent]) -> bool:
        return self._try_append(self._writer(hold.session_id), hold, EVENTS, encoded_lines(events))

    async def synchronise(self, hold: Hold) -> None:
        await self._writer(hold.session_id).synchronise(EVENTS)

    async def replace_messages(self, hold: Hold, messages: Iterable[Message]) -> None:
        content = encoded_lines(messages)
        await self._write(hold, lambda writer: writer.replace(hold, TRANSCRIPT, content))
        self._index.changed(hold.session_id)

    async def update(self, hold: Hold, **changes: Any) -> SessionRecord:
        record = await self._write_at_once(hold, lambda writer: writer.update(hold, changes))
        self._index.changed(hold.session_id)
        return record

    async def switch_plan(
        self, hold: Hold, plan: Mapping[str, Any], documents: Mapping[str, Any], **changes: Any
    ) -> int:
        files = {document_file_name(name): value for name, value in documents.items()}
        number = await self._write(hold, lambda writer: writer.switch_plan(hold, plan, files, changes))
        self._index.changed(hold.session_id)
        return number

    async def put_document(self, hold: Hold, name: str, value: Any) -> None:
        file_name, content = document_file_name(name), encoded_file(value)
        await self._write_at_once(hold, lambda writer: writer.replace(hold, file_name, content))

    async def put_parts(self, hold: Hold, parts: Mapping[str, bytes]) -> None:
        await self._write_at_once(hold, lambda writer: writer.append_parts(hold, parts))

    async def delete(self, hold: Hold) -> None:
        removed = self._trash.place_for_removal()
        await self._move_away(hold, removed)
        await asyncio.to_thread(shutil.rmtree, removed, ignore_errors=True)

    async def discard(self, hold: Hold) -> None:
        await self._move_away(hold, self._trash.place_for(hold.session_id))

    async def _move_away(self, hold: Hold, place: Path) -> None:
        await self._write(hold, lambda writer: writer.delete(hold, place))
        self._index.changed(hold.session_id)
        self._forget(hold.session_id)

    async def trash(self) -> tuple[TrashedSession, ...]:
        return await in_thread(lambda _: self._trash.list())

    async def restore(self, session_id: str) -> None:
        self._forget(checked_session_id(session_id))
        await in_thread(lambda _: self._trash.restore(session_id))
        self._index.changed(session_id)

    async def purge(self, session_id: str, *, before: str | None = None) -> None:
        await in_thread(lambda _: self._trash.purge(checked_session_id(session_id), before))

    async def read_trashed(self, trashed: TrashedSession) -> NewSession:
        return await in_thread(lambda _: self._trash.read(trashed))

    async def add_trashed(self, new: NewSession, deleted_at: str) -> None:
        checked_session_id(new.record.session_id)
        await in_thread(lambda _: self._trash.add(new, deleted_at))

    def trashed_workspace(self, trashed: TrashedSession) -> Path:
        return self._trash.place_of(trashed.record.session_id, trashed.deleted_at)

    async def join(self) -> str | None:
        return self._locks.incarnation

    def belong_to(self, member_id: str) -> None:
        self._locks.incarnation = member_id

    def serve_as(self, incarnation: str) -> None:
        self._locks.incarnation = incarnation

    def workspace(self, session_id: str) -> Path:
        return self._files(session_id).directory

    async def tidy(self) -> None:
        """Do nothing: a session is deleted with everything that belongs to it."""

    async def close(self) -> None:
        self._is_closed = True
        for session_id, writer in tuple(self._writers.items()):
            if writer.waiting:
                await run_to_end(writer.in_turn(lambda: None))  # what was asked for before is done
            self._forget(session_id)
        await in_thread(lambda _: self._index.close())

    async def _append(self, hold: Hold, name: str, data: bytes, lasting: bool) -> None:
        writer = self._writer(hold.session_id)
        if not self._try_append(writer, hold, name, data):
            await writer.in_turn(lambda: writer.append(hold, name, data, lasting=lasting))
        elif lasting:
            await writer.synchronise(name)
        if name == TRANSCRIPT and data:
            self._index.changed(hold.session_id)

    def _try_append(self, writer: SessionWriter, hold: Hold, name: str, data: bytes) -> bool:
        if not data:
            return True
        return not writer.waiting and len(data) <= _ON_LOOP_BYTES and writer.try_append(hold, name, data)

    async def _write(self, hold: Hold, work: Callable[[SessionWriter], T]) -> T:
        writer = self._writer(hold.session_id)
        return await writer.in_turn(lambda: work(writer))

    async def _write_at_once(self, hold: Hold, work: Callable[[SessionWriter], T]) -> T:
        writer = self._writer(hold.session_id)
        return await writer.at_once(lambda: work(writer))

    def _files_of(self, session_id: str) -> SessionFiles:
        return SessionFiles(self._sessions / checked_session_id(session_id))

    def _writer(self, session_id: str) -> SessionWriter:
        """Return the open files of a session; those used longest ago are closed when there are too many."""
        writer = self._writers.get(session_id)
        if self._is_closed:
            raise StoreClosedError(f"the store of {self._sessions} was closed", hint="open the home again")
        if writer is None:
            writer = self._writers[session_id] = SessionWriter(self._files(session_id), self._locks, self._disk)
            self._close_oldest()
        else:
            self._writers.move_to_end(session_id)
        return writer

    def _close_oldest(self) -> None:
        idle = [name for name, writer in self._writers.items() if not writer.waiting]
        for name in idle[: max(0, len(self._writers) - _MOST_OPEN)]:
            self._forget(name)

    def _forget(self, session_id: str) -> None:
        if (writer := self._writers.get(session_id)) is not None and not writer.waiting:
            del self._writers[session_id]
            writer.close()

    def _find_live_hold(self, files: SessionFiles) -> Hold | None:
        files.check_exists()
        hold = find_hold(files)
        return hold if hold is not None and self._locks.counts(hold) else None

    def _is_abandoned(self, files: SessionFiles, stop: Stop) -> bool:
        stop.check()
        hold = files.read_hold()
        return hold is not None and not self._locks.counts(hold)
