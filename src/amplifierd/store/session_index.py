"""The index of a home's sessions: written behind, and never more than a faster way to what the files say."""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from amplifier_foundation.sources import Progress
from amplifier_foundation.sources.store import make_directory
from amplifier_sessions.index_query import (
    Wanted,
    has_full_text,
    message_byte,
    message_text,
    seen_at,
    select_page,
    select_places,
    select_tree,
)
from amplifier_sessions.session_directory import TRANSCRIPT, pending_directory
from amplifier_sessions.session_list import changed_at, find_strangers, is_settled
from amplifier_sessions.session_query import SessionQuery, matches
from amplifier_system.files import PRIVATE
from amplifier_system.threads import Stop
from amplifierd.paths import Paths

from .file_listing import below, find_record, scan_descendants, scan_hits, scan_page
from .index_database import IndexDatabase, IndexUnusableError
from .json_lines import line_at, parse_line
from .protocol import SearchHit, SessionPage
from .record import SessionRecord

logger = logging.getLogger(__name__)

T = TypeVar("T")

_BEHIND_S = 0.5
_LONGEST_BEHIND_S = 30.0
_SHARE_OF_TIME = 50  # comparing all names may take one part in so many of a CPU's time
_ATTEMPTS = 3
_LEAST_CANDIDATES = 200


class SessionIndex:
    """Answers from the index or, where there is none to be had, from the files. All but `changed` blocks."""

    def __init__(self, paths: Paths, progress: Progress | None = None) -> None:
        self._sessions = paths.sessions
        self._database = IndexDatabase(paths.index_file, paths.sessions, progress)
        self._pending = PendingSessions(pending_directory(paths.index_file))
        self._writing = threading.Lock()
        self._starting = threading.Lock()
        self._closing = threading.Event()
        self._behind: threading.Thread | None = None
        self._next_look = 0.0
        self._seen = -1
        self._warned = ""

    def changed(self, session_id: str) -> None:
        """Let the index follow a change of a session's files within a second."""
        if self._pending.add(session_id):
            with self._starting:
                if self._behind is None:
                    self._behind = threading.Thread(target=self._write_behind, name="session-index", daemon=True)
                    self._behind.start()

    def page(self, query: SessionQuery, stop: Stop) -> SessionPage:
        return self._ask(lambda: self._page(query, stop), lambda: scan_page(self._sessions, query), stop)

    def hits(self, text: str, *, limit: int, owner: str | None, stop: Stop) -> tuple[SearchHit, ...]:
        return self._ask(
            lambda: self._hits(Wanted(text), limit, owner, stop),
            lambda: scan_hits(self._sessions, text, limit=limit, owner=owner),
            stop,
        )

    def descendants(self, record: SessionRecord, stop: Stop) -> tuple[str, ...]:
        return self._ask(
            lambda: self._descendants(record, stop), lambda: scan_descendants(self._sessions, record), stop
        )

    def close(self) -> None:
        """Write what waits to be written, if that can be done."""
        self._closing.set()
        if (thread := self._behind) is not None:
            thread.join()
        self._try_to_write(Stop())
        self._pending.close()
        self._database.close()

    def _ask(self, question: Callable[[], T], otherwise: Callable[[], T], stop: Stop) -> T:
        for last in (False, True):
            try:
                self._write(stop)
                self._look(stop)
                return question()
            except IndexUnusableError as error:
                if last:
                    self._warn(f"the session index cannot be used, all sessions are read instead: {error}")
        return otherwise()

    def _page(self, query: SessionQuery, stop: Stop) -> SessionPage:
        for _ in range(_ATTEMPTS):
            with self._database.reading(stop) as connection:
                if query.text is not None:
                    _require_full_text(connection)
                ids, total = select_page(connection, query)
            records = {session_id: find_record(self._sessions / session_id) for session_id in ids}
            wrong = {name for name, record in records.items() if record is None or not matches(record, query)}
            if not wrong:
                break
            self._database.refresh(wrong, stop)
        found = (record for name, record in records.items() if name not in wrong)
        return SessionPage(tuple(record for record in found if record is not None), total)

    def _hits(self, wanted: Wanted, limit: int, owner: str | None, stop: Stop) -> tuple[SearchHit, ...]:
        with self._database.reading(stop) as connection:
            _require_full_text(connection)
            found = select_places(connection, wanted, owner=owner, limit=max(limit, _LEAST_CANDIDATES))
        hits: list[SearchHit] = []
        for session_id, where in found:
            if len(hits) == limit:
                break
            if (hit := self._hit(session_id, where, wanted)) is not None:
                hits.append(hit)
        return tuple(hits)

    def _hit(self, session_id: str, where: int, wanted: Wanted) -> SearchHit | None:
        """Return what stands at a place; None when the session changed since, which the index will learn."""
        record = find_record(self._sessions / session_id)
        if record is None:
            self.changed(session_id)
            return None
        byte = message_byte(where)
        if byte is None:
            return SearchHit(record, wanted.snippet(record.name or ""))
        message = parse_line(line_at(self._sessions / session_id / TRANSCRIPT, byte))
        if message is None:
            self.changed(session_id)
            return None
        return SearchHit(record, wanted.snippet(message_text(message)), message.get("id"), message.get("turn"))

    def _descendants(self, record: SessionRecord, stop: Stop) -> tuple[str, ...]:
        with self._database.reading(stop) as connection:
            tree = select_tree(connection, record.root_id)
        return below(record.session_id, tree)

    def _look(self, stop: Stop) -> None:
        """Find the sessions that others made, copied here or removed without a word to the index.

        The names are compared when the directory changed, and seldom enough to cost next to nothing.
        """
        changed = changed_at(self._sessions)
        if changed == self._seen or time.monotonic() < self._next_look:
            return
        settled = is_settled(changed)
        abandoned, files = self._pending.take_abandoned()
        with self._database.reading(stop) as connection:
            began_s = time.thread_time()  # which does not go on while a busy disk or machine holds us up
            is_known = seen_at(connection) == changed
            strangers = set() if is_known or not changed else find_strangers(connection, self._sessions)
            took_s = time.thread_time() - began_s
        self._database.refresh(strangers | abandoned, stop)
        for file in files:
            with suppress(OSError):
                file.unlink()
        if settled:
            if not is_known:
                self._database.note_seen(changed, stop)
            self._seen = changed
        self._next_look = time.monotonic() + _SHARE_OF_TIME * took_s

    def _write(self, stop: Stop) -> None:
        with self._writing:
            taken = self._pending.take()
            if not taken:
                return
            try:
                self._database.refresh(taken, stop)
            except BaseException:
                self._pending.put_back(taken)
                raise
            self._pending.done()

    def _try_to_write(self, stop: Stop) -> bool:
        try:
            self._write(stop)
        except IndexUnusableError as error:
            self._warn(f"the session index is not up to date: {error}")
            return False
        return True

    def _write_behind(self) -> None:
        delay_s = _BEHIND_S
        while not self._closing.wait(delay_s):
            delay_s = _BEHIND_S if self._try_to_write(Stop()) else min(2 * delay_s, _LONGEST_BEHIND_S)
            with self._starting:
                if not self._pending:
                    self._behind = None
                    return

    def _warn(self, text: str) -> None:
        if text != self._warned:
            self._warned = text
            logger.warning("%s", text)


def _require_full_text(connection: sqlite3.Connection) -> None:
    if not has_full_text(connection):
        raise IndexUnusableError("the SQLite of this Python has no full-text search (FTS5)")


# Which sessions changed since the index was last written, on disk too: a killed process leaves word of them.
#
# Each store keeps a file of its own, locked for as long as the process lives.


class PendingSessions:
    """The sessions of one store that wait to be indexed. `add` is cheap, and may be called from any thread."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / uuid.uuid4().hex
        self._lock = threading.Lock()
        self._waiting: set[str] = set()
        self._descriptor: int | None = None

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, session_id: str) -> bool:
        """Note a session; False when it was noted already."""
        if session_id in self._waiting:
            return False
        with self._lock:
            self._waiting.add(session_id)
            with suppress(OSError):  # a home that cannot be written has no index to fall behind either
                self._write([session_id])
        return True

    def take(self) -> set[str]:
        """Return what waits; it stays in the file until it is `done`."""
        with self._lock:
            taken, self._waiting = self._waiting, set()
            return taken

    def done(self) -> None:
        """Forget what was taken."""
        with self._lock, suppress(OSError):
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, 0)
                self._write(self._waiting)

    def put_back(self, taken: set[str]) -> None:
        with self._lock:
            self._waiting |= taken

    def take_abandoned(self) -> tuple[set[str], list[Path]]:
        """Return what processes that were killed had not indexed, and the files that say so."""
        found: set[str] = set()
        files: list[Path] = []
        with suppress(OSError):
            for path in list(self._directory.iterdir()):
                if path != self._path and (text := _read_abandoned(path)) is not None:
                    found.update(text.splitlines())
                    files.append(path)
        return found, files

    def close(self) -> None:
        with self._lock:
            if self._descriptor is not None:
                if not self._waiting:
                    with suppress(OSError):
                        self._path.unlink()
                os.close(self._descriptor)
                self._descriptor = None

    def _write(self, session_ids: list[str] | set[str]) -> None:
        while self._descriptor is None:
            make_directory(self._directory)
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if self._path.exists():  # and was not taken for abandoned before it was locked
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        if session_ids:
            os.write(self._descriptor, "".join(f"{session_id}\n" for session_id in session_ids).encode())


def _read_abandoned(path: Path) -> str | None:
    """Return what a file says whose process is gone, else None."""
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return file.read().decode(errors="replace")
    return None
