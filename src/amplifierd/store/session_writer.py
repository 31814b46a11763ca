"""Writing into one session's files: everything under the gate, and only under a valid hold."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from amplifier_sessions.event_file import BLOCK_BYTES, EVENTS
from amplifier_sessions.session_directory import METADATA, SWITCH, TRANSCRIPT
from amplifier_system.files import PRIVATE, remove_unfinished, sync_directory
from amplifier_system.threads import ShortWork, in_thread
from amplifierd.exceptions import (
    HoldLostError,
    OutcomeUnknownError,
    SessionError,
    SessionNotFoundError,
    StoreFullError,
)
from amplifierd.os_errors import FULL, MAKE_ROOM

from .hold import DELETED, FREE, Hold, Holder, fence, fence_epoch, held
from .json_lines import append_whole, encoded_file, find_last_with, truncate_torn
from .parts_file import PartsFile
from .process_locks import Gate, ProcessLocks
from .record import SessionRecord, now
from .session_files import (
    GATE,
    HOLD,
    LINE_FILES,
    METADATA_FORMAT,
    PARTS,
    PLAN,
    SessionFiles,
    archived_plan_name,
    metadata_text,
)
from .staging import write_new

logger = logging.getLogger(__name__)

T = TypeVar("T")

_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
_PREPARED = ".switch-"
_ATTEMPTS = 3
_POLL_S = 0.001
_TOO_LARGE = "make room for larger files (ulimit -f), then try again"


class _GateLockedError(Exception):
    """The event loop does not wait for the gate."""


class SessionWriter:
    """One session's files, opened as they are needed; one piece of work at a time.

    `in_turn` runs blocking work in a thread, in the order in which it was asked for, and `at_once` on the event loop
    while the disk is quick. `try_append` is for the event loop: it does its work at once or not at all.
    """

    def __init__(self, files: SessionFiles, locks: ProcessLocks, disk: ShortWork) -> None:
        self.files, self._locks, self._disk = files, locks, disk
        self._folder = str(files.directory)
        self.parts = PartsFile(files.path(PARTS))
        self.waiting = 0
        self._turn = asyncio.Lock()
        self._gate: Gate | None = None
        self._descriptors: dict[str, int] = {}
        self._unsynchronised = {TRANSCRIPT, EVENTS}  # which may have been appended to before
        self._doubtful: set[str] = set()  # files that may end within a line
        self._known: tuple[object, SessionRecord | None] = (None, None)
        self._indexed = 0  # bytes of the events that can be found through their index
        self._owed: dict[str, Any] = {}  # what the end of a turn changes, and the record does not say yet
        self._may_have_switch = True  # that a full disk or a killed process stopped halfway
        self._may_wait = True  # for the gate

    async def in_turn(self, work: Callable[[], T]) -> T:
        if self.waiting == 0:
            self._turn = asyncio.Lock()  # an older one may belong to an event loop that is gone
        self.waiting += 1
        try:
            async with self._turn:
                return await in_thread(lambda _: work())
        finally:
            self.waiting -= 1

    async def at_once(self, work: Callable[[], T]) -> T:
        """Do work that takes as long as the disk: on the event loop, unless that would keep it."""
        if not self.waiting and self._disk.is_short(self):
            with suppress(_GateLockedError):
                return await self._disk.run(lambda _: self._without_waiting(work), self)
        return await self.in_turn(work)

    def _without_waiting(self, work: Callable[[], T]) -> T:
        """Do work now, and nothing of it where another process has the gate."""
        self._may_wait = False
        try:
            return work()
        finally:
            self._may_wait = True

    def try_append(self, hold: Hold, name: str, data: bytes) -> bool:
        """Append lines unless the gate is locked at this moment."""
        gate = self._gate or self._open_gate()
        if not gate.try_lock():
            return False
        try:
            gate.check(hold)
            append_whole(self._descriptors.get(name) or self._descriptor(name), data)
            self._unsynchronised.add(name)
        except OSError as error:
            self._doubt(name)
            raise self._not_written(error) from error
        finally:
            gate.unlock()
        return True

    def append(self, hold: Hold, name: str, data: bytes, *, lasting: bool = False) -> None:
        with self._under(hold):
            self._append(name, data)
        self._unsynchronised.add(name)
        if lasting:
            self._synchronise(name, self._descriptor(name))

    def append_parts(self, hold: Hold, parts: Mapping[str, bytes]) -> None:
        if data := self.parts.lines_for(parts):
            self.append(hold, PARTS, data)

    async def synchronise(self, name: str) -> None:
        """Wait until what `try_append` wrote just now is on the disk."""
        if self._disk.is_short(self):
            await self._disk.run(lambda _: self._synchronise(name, self._descriptor(name)), self)
            return
        descriptor = os.dup(self._descriptor(name))  # the file may be closed meanwhile
        try:
            await self._disk.run(lambda _: self._synchronise(name, descriptor), self)
        finally:
            os.close(descriptor)

    def _synchronise(self, name: str, descriptor: int) -> None:
        self._unsynchronised.discard(name)  # first: what is appended meanwhile counts as new
        try:
            os.fsync(descriptor)
        except OSError as error:
            self._unsynchronised.add(name)
            raise OutcomeUnknownError(
                f"it is not known whether the disk has what was written to session {self.files.session_id!r}: {error}",
                hint=MAKE_ROOM if error.errno in FULL else "see what the system's log says of the disk",
            ) from error

    def _synchronise_lines(self) -> None:
        """Wait until the messages and events that were appended are on the disk; the index follows now and then."""
        for name in (TRANSCRIPT, EVENTS):
            if name in self._unsynchronised:
                with self._writing():
                    self._synchronise(name, self._descriptor(name))
        if self.files.size(EVENTS) - self._indexed >= BLOCK_BYTES:
            self._indexed = self.files.index_events()

    def _current_record(self) -> SessionRecord:
        """Return what `metadata.json` says; it is read unless it is the one that was written here last."""
        status, record = self._known
        return record if record is not None and status == self._metadata_status() else self.files.read_record()

    def _metadata_status(self) -> object:
        """Return what differs from one version of `metadata.json` to the next; a switch of the plan has its own."""
        if self._may_have_switch:
            return object()
        try:
            status = os.stat(f"{self._folder}/{METADATA}")  # noqa: PTH116 - in every turn
        except FileNotFoundError:
            return object()
        return status.st_ino, status.st_mtime_ns, status.st_size

    def replace(self, hold: Hold, name: str, content: bytes, *, lasting: bool = True) -> None:
        """Replace a file in one step; unless it is lasting, a power failure may bring the former one back."""
        with self._written_beside(name, content) as temporary, self._under(hold):
            if self._may_have_switch:
                self._finish_switch()
            self._close_file(name)
            os.replace(temporary, f"{self._folder}/{name}")  # noqa: PTH105 - in every turn
        if lasting:
            sync_directory(self.files.directory)

    def update(self, hold: Hold, changes: Mapping[str, Any], *, lasting: bool = True) -> SessionRecord:
        record = self._current_record().changed(**{**self._owed, **changes})
        self._synchronise_lines()  # what a record counts is on the disk before it
        self.replace(hold, METADATA, metadata_text(record), lasting=lasting)
        self._owed = {}
        self._known = (self._metadata_status(), record)
        return record

    def end_turn(self, hold: Hold, turn_id: str, data: bytes, changes: Mapping[str, Any]) -> SessionRecord:
        """Append the end of a turn, which counts from here on, and change the record as it says."""
        with self._under(hold):
            mark = find_last_with(self._descriptor(EVENTS), f'"turn_id":"{turn_id}"'.encode())
            if mark is None or "changes" not in mark:  # it has only begun so far
                self._append(EVENTS, data)
                self._unsynchronised.add(EVENTS)
        self._synchronise_lines()
        self._owed |= changes
        try:
            return self.update(hold, {}, lasting=False)  # the end lasts, and the record follows from it
        except (HoldLostError, SessionNotFoundError):
            raise
        except SessionError as error:  # no file can be made at the moment
            logger.warning("the record of session %s is behind its events: %s", self.files.session_id, error)
            return self._current_record().changed(**self._owed)

    def switch_plan(
        self, hold: Hold, plan: Mapping[str, Any], documents: Mapping[str, Any], changes: Mapping[str, Any]
    ) -> int:
        number = self.files.count_archived_plans() + 1
        record = self.files.read_record().changed(**changes)
        contents = {PLAN: encoded_file(plan), METADATA: metadata_text(record)}
        contents |= {name: encoded_file(value) for name, value in documents.items()}
        if (archived := self.files.read(PLAN)) is not None:
            contents[archived_plan_name(number)] = archived
        with self._written_together(contents) as prepared, self._under(hold):
            self._finish_switch()
            self._may_have_switch = True
            prepared.rename(self.files.path(SWITCH))
            sync_directory(self.files.directory)
            self._finish_switch()
        return number

    def acquire(self, holder: Holder, *, take_over: bool) -> Hold:
        self.files.read_record()  # a session that cannot be read is not changed either
        for _ in range(_ATTEMPTS):
            gate = self._open_gate(create=True)
            with gate.locked():
                if gate.is_in_place():  # and not that of a session that was deleted while we waited
                    return self._acquire(gate, holder, take_over)
        raise self.files.not_found()

    def release(self, hold: Hold) -> None:
        with self._under(hold):
            self._require_gate().write(fence(hold.epoch, FREE))
            self._write_hold({"holder": None, "epoch": hold.epoch, "since": now()})
        self.close()

    def delete(self, hold: Hold, trash: Path) -> None:
        """Move the directory away in one step; nothing can be written into it any more."""
        with self._under(hold):
            self._require_gate().write(fence(hold.epoch, DELETED))
            try:
                self.files.directory.rename(trash)
            except OSError:
                self._require_gate().write(hold.fence)
                raise
        self.close()

    def close(self) -> None:
        for name in tuple(self._descriptors):
            self._close_file(name)
        if self._gate is not None:
            self._gate.close()
            self._gate = None

    def _acquire(self, gate: Gate, holder: Holder, take_over: bool) -> Hold:
        current, line = find_hold(self.files), gate.read()
        if current is not None and not take_over and self._locks.counts(current):
            raise held(current)
        hold = Hold(self.files.session_id, holder, fence_epoch(line) + 1, now(), self._locks.incarnation)
        try:
            self._clean_up()
            gate.write(hold.fence)  # first: the previous holder is out from here on
            self._write_hold(hold.to_dict())
        except OSError as error:
            gate.write(line)
            raise self._not_written(error) from error
        return hold

    @contextmanager
    def _under(self, hold: Hold) -> Iterator[None]:
        gate = self._gate or self._open_gate()
        with gate.locked() if self._may_wait else self._locked_at_once(gate):
            gate.check(hold)
            with self._writing():
                yield

    @contextmanager
    def _locked_at_once(self, gate: Gate) -> Iterator[None]:
        if not gate.try_lock():
            raise _GateLockedError
        try:
            yield
        finally:
            gate.unlock()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise self.files.not_found() from None
        except OSError as error:
            raise self._not_written(error) from error

    def _open_gate(self, *, create: bool = False) -> Gate:
        """Open the gate anew, and with it every file: another process may have replaced them."""
        self.close()
        self._may_have_switch = True
        try:
            self._gate = Gate(self.files.path(GATE), create=create)
        except FileNotFoundError:
            raise self.files.not_found() from None
        except OSError as error:
            raise self._not_written(error) from error
        return self._gate

    def _not_written(self, error: OSError) -> SessionError:
        text = f"session {self.files.session_id!r} cannot be written, and stays as it was: {error}"
        if error.errno in FULL:
            return StoreFullError(text, hint=MAKE_ROOM)
        writable = f"make {self.files.directory} writable; reading works all the same"
        return SessionError(text, hint=_TOO_LARGE if error.errno == errno.EFBIG else writable)

    def _require_gate(self) -> Gate:
        return self._gate or self._open_gate()

    def _append(self, name: str, data: bytes) -> None:
        try:
            append_whole(self._descriptor(name), data)
        except OSError:
            self._doubt(name)
            raise

    def _doubt(self, name: str) -> None:
        """Let the next append begin a line of its own: part of one that failed may be left, if it was not removed."""
        self._close_file(name)
        self._doubtful.add(name)

    def _descriptor(self, name: str) -> int:
        found = self._descriptors.get(name)
        if found is None:
            if name in self._doubtful:
                truncate_torn(self.files.path(name))
                self._doubtful.discard(name)
            found = self._descriptors[name] = os.open(self.files.path(name), _APPEND, PRIVATE)
        return found

    def _close_file(self, name: str) -> None:
        descriptor = self._descriptors.pop(name, None)
        if descriptor is not None:
            os.close(descriptor)

    def _write_hold(self, value: Mapping[str, Any]) -> None:
        # After a power failure no process is left that could hold anything, so no one has to wait for the disk.
        with self._written_beside(HOLD, encoded_file(value), lasting=False) as temporary:
            os.replace(temporary, f"{self._folder}/{HOLD}")  # noqa: PTH105 - whenever a session is opened

    def _clean_up(self) -> None:
        """Finish or remove what the last holder left when it was killed, and bring older files up to date."""
        for leftover in self.files.directory.glob(f"{_PREPARED}*"):
            shutil.rmtree(leftover, ignore_errors=True)
        self._finish_switch()
        for name in LINE_FILES:
            truncate_torn(self.files.path(name))
        remove_unfinished(self.files.directory)
        METADATA_FORMAT.read(self.files.path(METADATA))

    @contextmanager
    def _written_beside(self, name: str, content: bytes, *, lasting: bool = True) -> Iterator[str]:
        """Yield a file that is on the disk and only has to be moved: no one waits for the disk inside the gate."""
        temporary = f"{self._folder}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            with self._writing():
                write_new(temporary, content, lasting=lasting)
            yield temporary
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise

    @contextmanager
    def _written_together(self, contents: Mapping[str, bytes]) -> Iterator[Path]:
        """Yield a directory of files that are on the disk; it is gone afterwards unless it was moved."""
        prepared = self.files.path(f"{_PREPARED}{uuid.uuid4().hex}")
        try:
            with self._writing():
                prepared.mkdir(mode=0o700)
                for name, content in contents.items():
                    write_new(prepared / name, content)
                sync_directory(prepared)
            yield prepared
        finally:
            shutil.rmtree(prepared, ignore_errors=True)

    def _finish_switch(self) -> None:
        switch = self.files.path(SWITCH)
        with suppress(FileNotFoundError):
            for path in sorted(switch.iterdir()):
                path.replace(self.files.path(path.name))
            sync_directory(self.files.directory)
            switch.rmdir()
        self._may_have_switch = False


def find_hold(files: SessionFiles) -> Hold | None:
    """Return the hold that is valid according to the gate, whether or not its process lives."""
    for _ in range(_ATTEMPTS):
        hold, line = files.read_hold(), files.read(GATE)
        if hold is None or line == hold.fence:
            return hold
        time.sleep(_POLL_S)  # the two are written one after the other
    return None
