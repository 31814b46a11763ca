"""A backup: a directory with the files of every session, and `backup.json`, which says what belongs to it.

    {"format_version": 1, "made_at": …, "of": …, "is_complete": true, "sessions": {session id: fingerprint}}

It is written once and then only read. One whose writing was interrupted says so, and is continued.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import shlex
import shutil
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from amplifier_foundation.sources.store import make_directory
from amplifier_system.threads import in_thread
from amplifierd.exceptions import FormatUnsupportedError, SessionError
from amplifierd.stored_json import StoredFormat

from .file_listing import session_names
from .protocol import NewSession, StoreSnapshot
from .record import now
from .session_files import SessionFiles
from .staging import create_directory, remove_leftovers
from .whole_session import free_contents, read_whole

MANIFEST = "backup.json"
_SESSIONS = "sessions"
_FORMAT = StoredFormat(version=1, private=True)


class Backup:
    """A finished backup, to be read."""

    def __init__(self, directory: Path) -> None:
        self._directory, self._sessions = directory, directory / _SESSIONS
        self._known: dict[str, str] = {}

    @classmethod
    def open(cls, directory: Path) -> Backup:
        """Return the backup in a directory.

        Raises:
            SessionError: there is none, or it was never finished.
            FormatUnsupportedError: a newer version wrote it.
        """
        found = _manifest(directory)
        if found is None:
            raise SessionError(f"there is no backup in {directory}", hint="name the directory of a backup")
        if not found.get("is_complete"):
            hint = f"finish it: amplifier store backup {shlex.quote(str(directory))}"
            raise SessionError(f"the backup in {directory} was not finished", hint=hint)
        backup = cls(directory)
        backup._known = dict(found["sessions"])
        return backup

    async def session_ids(self) -> Sequence[str]:
        return sorted(self._known)

    async def read_whole(self, session_id: str) -> NewSession:
        """Return a session.

        Raises:
            SessionError: it is not what was written.
        """
        files = SessionFiles(self._sessions / session_id)
        whole = await in_thread(lambda _: read_whole(files))
        if fingerprint(whole) != self._known.get(session_id):
            raise SessionError(
                f"session {session_id!r} in {self._directory} is not as it was written", hint="use another backup"
            )
        return whole


async def write_backup(snapshot: StoreSnapshot, directory: Path, of: str) -> AsyncIterator[str]:
    """Write what a store has into a directory, and yield the ids of the sessions as they are written.

    Raises:
        SessionError: the directory has something else in it, or a session cannot be read or written.
    """
    begun = await in_thread(lambda _: _begin(directory, of))
    sessions, written = directory / _SESSIONS, dict[str, str]()
    for session_id in await snapshot.session_ids():
        whole = await snapshot.read_whole(session_id)
        written[session_id] = await asyncio.to_thread(_write, sessions, whole)
        yield session_id
    await in_thread(lambda _: _finish(directory, {**begun, "sessions": written, "is_complete": True}))


def _begin(directory: Path, of: str) -> dict[str, Any]:
    found = _manifest(directory)
    if found is None and directory.exists() and any(directory.iterdir()):
        raise SessionError(f"{directory} has other files in it", hint="name a new directory")
    if found is not None and found.get("is_complete"):
        raise SessionError(f"there is a finished backup in {directory}", hint="name a new directory")
    make_directory(directory / _SESSIONS)
    remove_leftovers(directory / _SESSIONS)
    begun = {"made_at": now(), "of": of, "is_complete": False, "sessions": {}}
    _FORMAT.write(directory / MANIFEST, begun)
    return begun


def _write(sessions: Path, whole: NewSession) -> str:
    """Write a session, and return its fingerprint as it is read again; one that is there already stays."""
    session_id, wanted = whole.record.session_id, fingerprint(whole)
    files = SessionFiles(sessions / session_id)
    with suppress(SessionError):  # of an attempt before this one
        if fingerprint(read_whole(files)) == wanted:
            return wanted
    shutil.rmtree(files.directory, ignore_errors=True)
    try:
        create_directory(sessions, session_id, free_contents(whole))
    except OSError as error:
        raise SessionError(f"session {session_id!r} cannot be written: {error}", hint="make room there") from error
    if fingerprint(read_whole(files)) != wanted:
        raise SessionError(f"session {session_id!r} is not as it was written", hint="look at the disk")
    return wanted


def _finish(directory: Path, manifest: dict[str, Any]) -> None:
    for name in set(session_names(directory / _SESSIONS)) - set(manifest["sessions"]):
        shutil.rmtree(directory / _SESSIONS / name, ignore_errors=True)  # deleted since an attempt before this one
    _FORMAT.write(directory / MANIFEST, manifest)


def _manifest(directory: Path) -> dict[str, Any] | None:
    try:
        return _FORMAT.read(directory / MANIFEST)
    except FormatUnsupportedError:
        raise
    except (OSError, ValueError) as error:
        raise SessionError(f"{directory / MANIFEST} cannot be read: {error}", hint="name another directory") from error


def fingerprint(whole: NewSession) -> str:
    """Return the SHA-256 of a session's record, plans, messages, events, documents and parts, in hexadecimal."""
    digest = hashlib.sha256()
    for piece in _pieces(whole):
        digest.update(f"{len(piece)}:".encode())
        digest.update(piece)
    return digest.hexdigest()


def _pieces(whole: NewSession) -> Iterator[bytes]:
    yield _canonical(whole.record.fields())
    for lines in ((whole.plan, *whole.archived_plans), whole.messages, whole.events):
        yield str(len(lines)).encode()
        yield from map(_canonical, lines)
    for name in sorted(whole.documents):
        yield name.encode()
        yield _canonical(whole.documents[name])
    for name in sorted(whole.parts):
        yield name.encode()
        yield whole.parts[name]


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
