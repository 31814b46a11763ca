"""Sessions from a file that `export` wrote, taken into a store: all of them or none."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from heapq import merge
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from amplifier_foundation.sources import Progress
from amplifier_sessions.session_directory import TRANSCRIPT
from amplifier_system.permission_levels import within_default
from amplifier_system.tasks import run_to_end
from amplifier_system.threads import in_thread
from amplifierd.exceptions import (
    FormatUnsupportedError,
    InvalidSessionIdError,
    MountPlanError,
    SessionError,
    SessionExistsError,
    SessionImportError,
    SessionNotFoundError,
)
from amplifierd.paths import Paths
from amplifierd.plans.session_policy import narrowed_plan
from amplifierd.profiles.documents.literal_secrets import KeepSecret, conceal
from amplifierd.sessions.events.announcements import Announcements, last_of
from amplifierd.sessions.working_place import Machine, unfit_working_dir
from amplifierd.signing_keys import Signer, SigningKeys
from amplifierd.store.json_lines import parse_line
from amplifierd.store.parts_file import PartsIn
from amplifierd.store.protocol import Hold, Holder, NewSession, SessionStore, StoredEvent
from amplifierd.store.record import SessionRecord, checked_session_id, new_session_id
from amplifierd.store.staging import scratch_directory
from amplifierd.store.whole_session import StoredLines

from .export import (
    CARRIED_DOCUMENTS,
    DOCUMENTS,
    EVENTS,
    LOCK,
    LOCK_DOCUMENT,
    PARTS,
    PLAN,
    RECEIPTS,
    RECORD,
)
from .session_archive import Advance, ArchiveLimits, SessionArchive, parse_json, unpack_archive

_TRIES = 5
_RESET = {
    **{"mount_plan_path": "mount_plan.json", "revision": 0, "stale": False},
    **{"owner": None, "origin": None, "takeover": None, "is_trusted": False, "on_takeover": "ask"},
}
_LAST_NUMBER = 2**53  # what a program in a browser can count to


@dataclass(frozen=True)
class ImportedSession:
    """What was imported: the session that the file is about, and the ids that its sessions have here.

    `signer` is None for a file without a signature. Only a signer that this home trusts makes a session `verified`.
    `left_out` are the key paths of secrets that stayed in the home where it was exported.
    """

    record: SessionRecord
    ids: Mapping[str, str]
    signer: Signer | None
    left_out: tuple[str, ...] = ()

    @property
    def verified(self) -> bool:
        return self.signer is not None and self.signer.is_trusted


async def import_session(
    path: Path,
    store: SessionStore,
    holder: Holder,
    keys: SigningKeys,
    announcements: Announcements,
    keep: KeepSecret,
    *,
    paths: Paths,
    working_dir: Path,
    limits: ArchiveLimits | None = None,
    progress: Progress | None = None,
) -> ImportedSession:
    """Store the sessions of an exported file under their own ids, or under new ones where these are taken.

    `keep` stores a secret that a plan in the file has. A policy in the file can only narrow that of this home. A
    session that says to work where none should, such as `/`, works in `working_dir`. Messages, events and parts go
    through it a line at a time; `progress` hears how far it is.

    Raises:
        FormatUnsupportedError: a newer version wrote the file.
        SessionImportError: it was changed, damaged or made by something else; nothing is stored.
    """
    with scratch_directory(paths.sessions) as folder:
        advance = Advance(progress, "session import", path)
        archive = await in_thread(lambda stop: unpack_archive(path, folder, limits, advance.count))
        imported = await _import(
            archive, store, holder, keys, announcements, keep, paths=paths, working_dir=working_dir
        )
        advance.finish()
        return imported


async def _import(
    archive: SessionArchive,
    store: SessionStore,
    holder: Holder,
    keys: SigningKeys,
    announcements: Announcements,
    keep: KeepSecret,
    *,
    paths: Paths,
    working_dir: Path,
) -> ImportedSession:
    signer = await in_thread(lambda stop: _signer_of(archive, keys))
    sessions = await in_thread(lambda stop: _sessions_in(archive, keep, paths))
    places = {place: _fit_place(place, working_dir, paths) for place in {each.record.working_dir for each in sessions}}
    left_out = tuple(map(str, archive.manifest.get("left_out") or ()))
    for _ in range(_TRIES):
        ids = await _free_ids(store, [session.record for session in sessions])
        adopted = [_adopted(session, ids, signer, places) for session in sessions]
        try:
            await run_to_end(_store_all(store, adopted, holder, announcements))
        except SessionExistsError:
            continue  # another process took an id meanwhile
        return ImportedSession(await store.read(adopted[0].record.session_id), ids, signer, left_out)
    raise SessionImportError(f"{archive.path} is not imported: its sessions' ids are being taken", hint="try again")


def _signer_of(archive: SessionArchive, keys: SigningKeys) -> Signer | None:
    if archive.signature is None:
        return None
    try:
        return keys.verify(archive.signed, archive.signature)
    except ValueError as error:
        raise SessionImportError(
            f"{archive.path} is not imported: {error}; it was changed after it was signed",
            hint="ask the person who exported it for a new one",
        ) from error


def _sessions_in(archive: SessionArchive, keep: KeepSecret, paths: Paths) -> list[NewSession]:
    """Return the sessions of a file, the one it is about first and parents before their children."""
    listed = archive.manifest.get("sessions")
    if not isinstance(listed, list) or not listed or len(set(map(str, listed))) != len(listed):
        raise SessionImportError(f"{archive.path} is not imported: its manifest names no sessions")
    sessions = [_session_in(archive, number, str(session_id), keep, paths) for number, session_id in enumerate(listed)]
    before: set[str] = set()
    for session in sessions:
        if before and session.record.parent_session_id not in before:
            raise SessionImportError(
                f"{archive.path} is not imported: session {session.record.session_id} is not below the others"
            )
        before.add(session.record.session_id)
    return sessions


def _session_in(archive: SessionArchive, number: int, session_id: str, keep: KeepSecret, paths: Paths) -> NewSession:
    def value(name: str, otherwise: Any) -> Any:
        full = f"sessions/{number}/{name}"
        file = archive.files.get(full)
        found = otherwise if file is None else parse_json(file.read_bytes(), archive.path, full)
        if not isinstance(found, dict):
            raise SessionImportError(f"{archive.path} is not imported: {full} is not a JSON object")
        return found

    try:
        record = SessionRecord.model_validate(value(RECORD, None))
        if checked_session_id(record.session_id) != session_id:
            raise SessionImportError(f"{archive.path} is not imported: {session_id!r} is stored as another session")
    except (ValidationError, InvalidSessionIdError) as error:
        raise SessionImportError(f"{archive.path} is not imported: session {number} has no valid record") from error
    documents = {name: held for name, held in value(DOCUMENTS, {}).items() if name in CARRIED_DOCUMENTS}
    lock = value(LOCK, {})
    try:
        plan = narrowed_plan(value(PLAN, {}), paths=paths, working_dir=Path(record.working_dir))
    except (MountPlanError, TypeError, ValueError) as error:
        raise SessionImportError(f"{archive.path} is not imported: session {number} has no valid plan") from error
    lines = partial(_checked_lines, archive)
    folder = f"sessions/{number}"
    events = [lines(f"{folder}/{name}", "event") for name in (EVENTS, RECEIPTS)]
    return NewSession(
        record,
        conceal(plan, keep),
        messages=lines(f"{folder}/{TRANSCRIPT}", "role"),
        events=_in_order(*events),
        documents={**documents, **({LOCK_DOCUMENT: lock} if lock else {})},
        parts=_parts_in(archive, f"{folder}/{PARTS}", lines(f"{folder}/{PARTS}", "digest")),
    )


def _checked_lines(archive: SessionArchive, full: str, needed: str) -> StoredLines:
    """Return the lines of a file, each an object with a text under a name; those of events have numbers."""
    file = archive.files.get(full)
    if file is None:
        return StoredLines(lambda: ())
    for _, line in _lines_in(file):
        entry = parse_line(line) or parse_json(line, archive.path, full)
        if not isinstance(entry, dict) or not isinstance(entry.get(needed), str):
            raise SessionImportError(f"{archive.path} is not imported: a line of {full} has no {needed!r}")
        if needed == "event" and not _has_number(entry):
            raise SessionImportError(f"{archive.path} is not imported: an event of {full} has no valid number")
    return StoredLines(lambda: (parse_line(line) or {} for _, line in _lines_in(file)))


def _parts_in(archive: SessionArchive, name: str, entries: StoredLines) -> Mapping[str, bytes]:
    """Return the parts of requests, each under its hash; they stay in their file."""
    file = archive.files.get(name)
    if file is None:
        return {}
    places: dict[str, tuple[int, int]] = {}
    for entry, (start, line) in zip(entries, _lines_in(file), strict=True):
        _check_part(entry, archive.path)
        places[entry["digest"]] = (start, len(line))
    return PartsIn(file, places)


def _check_part(entry: Mapping[str, Any], path: Path) -> None:
    digest, text, encoded = entry["digest"], entry.get("text"), entry.get("base64")
    try:
        is_text = isinstance(text, str) and "base64" not in entry
        content = str(text).encode() if is_text else base64.b64decode(str(encoded), validate=True)
    except ValueError:
        content = b""
    if hashlib.sha256(content).hexdigest() != digest:
        raise SessionImportError(f"{path} is not imported: the part {digest!r} of a request is not what its hash says")


def _lines_in(file: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a file that was unpacked, each with the place where it begins."""
    place = 0
    with file.open("rb") as lines:
        for line in lines:
            if line.strip():
                yield place, line
            place += len(line)


def _number(event: StoredEvent) -> Any:
    return event.get("seq", 0)


def _has_number(event: StoredEvent) -> bool:
    return type(_number(event)) is int and 0 <= _number(event) < _LAST_NUMBER


def _in_order(*files: StoredLines) -> Collection[StoredEvent]:
    """Return events and receipts as they were written; each of the files is in order, unless others made it."""
    if all(_number(one) <= _number(other) for file in files for one, other in pairwise(file)):
        return StoredLines(lambda: merge(*files, key=_number))
    return sorted(chain(*files), key=_number)


async def _free_ids(store: SessionStore, records: list[SessionRecord]) -> dict[str, str]:
    """Return the ids under which sessions are stored, by those they had; children follow a parent that is renamed."""
    ids: dict[str, str] = {}
    for record in records:
        own, parent = record.session_id, record.parent_session_id or ""
        new = own
        if parent in ids and own.startswith(parent):
            new = ids[parent] + own.removeprefix(parent)
        ids[own] = new if await _is_free(store, new) and new not in ids.values() else new_session_id()
    return ids


async def _is_free(store: SessionStore, session_id: str) -> bool:
    try:
        await store.read(session_id)
    except SessionNotFoundError:
        return True
    except (SessionError, FormatUnsupportedError):
        return False  # there is one that cannot be read, or the id is too long
    return False


def _fit_place(written: str, otherwise: Path, paths: Paths) -> str:
    try:
        is_fit = Path(written).is_absolute() and not unfit_working_dir(written, paths)
    except (OSError, ValueError, RuntimeError):  # a name that no disk takes, or a user who is not there
        is_fit = False
    return written if is_fit else str(otherwise)


def _adopted(
    session: NewSession, ids: Mapping[str, str], signer: Signer | None, places: Mapping[str, str]
) -> NewSession:
    """Return a session as it is stored here."""
    old = session.record
    is_root = old.session_id == next(iter(ids))
    record = old.model_copy(
        update={
            **_RESET,
            "session_id": ids[old.session_id],
            "parent_session_id": None if is_root else ids[str(old.parent_session_id)],
            "root_session_id": None if is_root else next(iter(ids.values())),
            "imported_from": old.session_id,
            "working_dir": places[old.working_dir],
            **Machine.here().place_of(places[old.working_dir]),
            "permission_level": within_default(old.permission_level),
            "verified": signer is not None and signer.is_trusted,
            "signed_by": signer.key_id if signer is not None else None,
        }
    )
    messages = StoredLines(lambda: (_renamed(message, ids) for message in session.messages))
    events = StoredLines(lambda: (_renamed(event, ids) for event in session.events))
    return replace(session, record=record, messages=messages, events=events)


def _renamed(value: Any, ids: Mapping[str, str]) -> Any:
    """Return plain data in which sessions that got new ids are called by them."""
    if all(own == new for own, new in ids.items()):
        return value
    if isinstance(value, str):
        return ids.get(value, value)
    if isinstance(value, dict):
        return {key: _renamed(item, ids) for key, item in value.items()}
    return [_renamed(item, ids) for item in value] if isinstance(value, list) else value


async def _store_all(
    store: SessionStore, sessions: list[NewSession], holder: Holder, announcements: Announcements
) -> None:
    """Store sessions; when one cannot be, none of them stays."""
    last = await in_thread(lambda _: last_of(sessions))
    tree = announcements.tree(sessions[0].record.session_id, last)
    stored: list[tuple[Hold, SessionRecord]] = []
    try:
        for session in sessions:
            stored.append((await announcements.create(session, holder, tree), session.record))
    except BaseException:
        for hold, record in reversed(stored):
            await announcements.delete(hold, record)
        raise
    for hold, _ in stored:
        await store.release(hold)
