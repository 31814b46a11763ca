"""A session and everything below it, written to one signed file; `docs/session-export.md` describes the format."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from amplifier_core.boundary import settle
from amplifier_foundation.sources import Progress
from amplifier_sessions.event_page import event_batches
from amplifier_system.threads import Stop, in_thread
from amplifierd.exceptions import MountPlanMissingError
from amplifierd.profiles.documents.literal_secrets import find_literal_secrets
from amplifierd.sessions.secret_values import SecretValues, masked, shown_record, with_masked_data, without_secrets
from amplifierd.signing_keys import SigningKeys
from amplifierd.store.json_lines import encoded_lines
from amplifierd.store.parts_file import part_pieces
from amplifierd.store.protocol import EventPage, EventPlace, Message, StoredEvent
from amplifierd.store.record import SessionRecord
from amplifierd.store.whole_session import encoded_pieces
from amplifierd.stored_json import json_text

from .session_archive import SUFFIX, Advance, Step, write_archive

RECORD, PLAN, LOCK, DOCUMENTS = "record.json", "plan.json", "lock.json", "documents.json"
TRANSCRIPT, EVENTS, RECEIPTS, PARTS = "transcript.jsonl", "events.jsonl", "receipts.jsonl", "parts.jsonl"

CARRIED_DOCUMENTS = ("context_messages", "agent")
"""The documents that travel with a session. "Always" decisions do not: they were made for one home."""

LOCK_DOCUMENT = "imported_lock"
RECEIPT_EVENTS = frozenset({"tool:intent", "tool:outcome"})

FindLock = Callable[[SessionRecord], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None]


class ReadableSessions(Protocol):
    """Where sessions are read from: a store, or the sessions of another application."""

    async def read(self, session_id: str) -> SessionRecord: ...

    async def read_plan(self, session_id: str, number: int | None = None) -> dict[str, Any]: ...

    async def read_messages(self, session_id: str) -> list[Message]: ...

    async def read_events(self, session_id: str, *, after_seq: int = 0) -> list[StoredEvent]: ...

    async def read_event_page(self, session_id: str, place: EventPlace) -> EventPage: ...

    async def read_document(self, session_id: str, name: str) -> Any | None: ...

    async def read_parts(self, session_id: str) -> Mapping[str, bytes]: ...

    async def descendants(self, session_id: str) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class ExportedSession:
    """A file that was written; `session_ids` has the exported session first.

    `left_out` are the key paths of secrets that stay in the key store of this home.
    """

    path: Path
    session_ids: tuple[str, ...]
    signer: str
    left_out: tuple[str, ...] = ()


async def export_session(
    source: ReadableSessions,
    session_id: str,
    path: Path,
    keys: SigningKeys,
    secrets: SecretValues,
    *,
    find_lock: FindLock | None = None,
    mask_messages: bool = False,
    progress: Progress | None = None,
) -> ExportedSession:
    """Write a session and its descendants to one file, signed with the key of this home.

    Events go through it a bounded part at a time; `progress` hears how far it is.

    A directory as `path` gets a file named after the session. `find_lock` finds the lock of the build that a session
    runs on. Events are masked and plans have no secrets; messages, receipts and the parts of provider requests are as
    they are stored, since a session cannot go on or be replayed without them. With `mask_messages`, for a file that
    others will see, messages and receipts are masked, the secrets of this home included, and
    requests left out.

    Raises:
        SessionNotFoundError: there is no such session.
        SettingsError: the key of this home cannot be read.
    """
    ids = (session_id, *await source.descendants(session_id))
    target = await in_thread(lambda _: _prepared(path, session_id))
    about = {"sessions": list(ids), "messages": "masked" if mask_messages else "whole"}
    advance = Advance(progress, "session export", target)
    with TemporaryDirectory(prefix=".export-", dir=target.parent) as folder:
        files: dict[str, Path] = {}
        left_out: set[str] = set()
        for number, each in enumerate(ids):
            exported = _Export(source, each, Path(folder) / str(number), secrets, mask_messages=mask_messages)
            left_out |= await exported.write(find_lock, advance.count)
            files |= {f"sessions/{number}/{name}": file for name, file in exported.files.items()}
        about |= {"left_out": sorted(left_out)}
        signature = await in_thread(lambda _: write_archive(target, files, about, keys.sign, advance.count))
    advance.finish()
    return ExportedSession(target, ids, signature["key_id"], tuple(sorted(left_out)))


def _prepared(path: Path, session_id: str) -> Path:
    """Return the file to write, whose directory is there."""
    target = path / f"{session_id}{SUFFIX}" if path.is_dir() else path
    target.parent.mkdir(parents=True, exist_ok=True)
    return target


class _Export:
    """One session on its way into a file: its parts, each in a file of its own in a folder, without what is secret."""

    def __init__(
        self, source: ReadableSessions, session_id: str, folder: Path, secrets: SecretValues, *, mask_messages: bool
    ) -> None:
        self._source, self._session_id, self._folder, self._secrets = source, session_id, folder, secrets
        self._mask_messages = mask_messages
        self.files: dict[str, Path] = {}

    async def write(self, find_lock: FindLock | None, step: Step) -> set[str]:
        """Write everything, and return the key paths of the secrets that were left out."""
        source, session_id = self._source, self._session_id
        self._folder.mkdir(mode=0o700)
        record = await source.read(session_id)
        try:
            plan = await source.read_plan(session_id)
        except MountPlanMissingError:
            plan = None
        lock = await settle(find_lock(record)) if find_lock is not None else None
        lock = lock or await source.read_document(session_id, LOCK_DOCUMENT)
        documents = {name: await source.read_document(session_id, name) for name in CARRIED_DOCUMENTS}
        documents = {name: value for name, value in documents.items() if value is not None}
        messages = await source.read_messages(session_id)
        parts = {} if self._mask_messages else await source.read_parts(session_id)
        if self._mask_messages:
            messages, documents = (self._secrets.masked(masked(value)) for value in (messages, documents))

        def put_all() -> None:
            self._put(RECORD, [json_text(shown_record(record))])
            self._put(DOCUMENTS, [json_text(documents)])
            self._put(TRANSCRIPT, encoded_pieces(messages))
            if parts:
                self._put(PARTS, part_pieces(parts))
            if plan is not None:
                self._put(PLAN, [json_text(without_secrets(plan))])
            if lock is not None:
                self._put(LOCK, [json_text(lock)])
            for name in (RECEIPTS, EVENTS):
                self._put(name, ())

        await in_thread(lambda _: put_all())
        async for batch in event_batches(source.read_event_page, session_id):
            step(await in_thread(partial(self._put_events, batch)))
        return set(find_literal_secrets(plan))

    def _put_events(self, batch: Sequence[StoredEvent], stop: Stop) -> int:
        """Write events and receipts of calls, each to their file, and return how many bytes they took."""
        receipts = [event for event in batch if event.get("event") in RECEIPT_EVENTS]
        others = [event for event in batch if event.get("event") not in RECEIPT_EVENTS]
        if self._mask_messages:
            receipts = self._secrets.masked(with_masked_data(receipts))
        size = self._put(RECEIPTS, [encoded_lines(receipts)])
        return size + self._put(EVENTS, [encoded_lines(with_masked_data(others))])

    def _put(self, name: str, pieces: Iterable[bytes]) -> int:
        file = self.files.setdefault(name, self._folder / name)
        with file.open("ab") as target:
            return sum(map(target.write, pieces))
