"""A session and everything below it, written to one signed file; `docs/session-export.md` describes the format."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from amplifier_core.boundary import settle
from amplifier_system.threads import in_thread
from amplifierd.documents.literal_secrets import find_literal_secrets
from amplifierd.exceptions import MountPlanMissingError
from amplifierd.session_store.json_lines import encoded_lines
from amplifierd.session_store.parts_file import part_lines
from amplifierd.session_store.protocol import EventPage, EventPlace, Message, StoredEvent
from amplifierd.session_store.record import SessionRecord
from amplifierd.signing_keys import SigningKeys
from amplifierd.stored_json import json_text

from .session_archive import SUFFIX, write_archive
from .without_secrets import masked, shown_record, with_masked_data, without_secrets

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

    async def read_parts(self, session_id: str) -> dict[str, bytes]: ...

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


@dataclass(frozen=True)
class _Exported:
    record: SessionRecord
    plan: dict[str, Any] | None
    lock: Mapping[str, Any] | None
    messages: list[Message]
    events: list[StoredEvent]
    documents: dict[str, Any]
    parts: dict[str, bytes]


async def export_session(
    source: ReadableSessions,
    session_id: str,
    path: Path,
    keys: SigningKeys,
    *,
    find_lock: FindLock | None = None,
    mask_messages: bool = False,
) -> ExportedSession:
    """Write a session and its descendants to one file, signed with the key of this home.

    A directory as `path` gets a file named after the session. `find_lock` finds the lock of the build that a session
    runs on. Events are masked and plans have no secrets; messages, receipts and the parts of provider requests are as
    they are stored, since a session cannot go on or be replayed without them. With `mask_messages`, for a file that
    others will see, messages and receipts are masked and requests left out.

    Raises:
        SessionNotFoundError: there is no such session.
        SettingsError: the key of this home cannot be read.
    """
    ids = (session_id, *await source.descendants(session_id))
    sessions = [await _read(source, each, find_lock) for each in ids]
    left_out = tuple(sorted({place for each in sessions for place in find_literal_secrets(each.plan)}))

    def write() -> tuple[Path, str]:
        target = path / f"{session_id}{SUFFIX}" if path.is_dir() else path
        files: dict[str, bytes] = {}
        for number, session in enumerate(sessions):
            contents = _contents(session, mask_messages=mask_messages)
            files.update({f"sessions/{number}/{name}": content for name, content in contents.items()})
        about = {"sessions": list(ids), "messages": "masked" if mask_messages else "whole", "left_out": left_out}
        return target, write_archive(target, files, about, keys.sign)["key_id"]

    target, signer = await in_thread(lambda stop: write())
    return ExportedSession(target, ids, signer, left_out)


async def _read(source: ReadableSessions, session_id: str, find_lock: FindLock | None) -> _Exported:
    record = await source.read(session_id)
    try:
        plan = await source.read_plan(session_id)
    except MountPlanMissingError:
        plan = None
    lock = await settle(find_lock(record)) if find_lock is not None else None
    documents = {name: await source.read_document(session_id, name) for name in CARRIED_DOCUMENTS}
    return _Exported(
        record,
        plan,
        lock or await source.read_document(session_id, LOCK_DOCUMENT),
        await source.read_messages(session_id),
        await source.read_events(session_id),
        {name: value for name, value in documents.items() if value is not None},
        await source.read_parts(session_id),
    )


def _contents(session: _Exported, *, mask_messages: bool) -> dict[str, bytes]:
    """Return the files of one session."""
    receipts = [event for event in session.events if event.get("event") in RECEIPT_EVENTS]
    others = [event for event in session.events if event.get("event") not in RECEIPT_EVENTS]
    messages, documents = session.messages, session.documents
    if mask_messages:
        messages, documents, receipts = masked(messages), masked(documents), with_masked_data(receipts)
    contents = {
        RECORD: json_text(shown_record(session.record)),
        TRANSCRIPT: encoded_lines(messages),
        RECEIPTS: encoded_lines(receipts),
        EVENTS: encoded_lines(with_masked_data(others)),
        DOCUMENTS: json_text(documents),
    }
    if session.parts and not mask_messages:
        contents[PARTS] = part_lines(session.parts)
    if session.plan is not None:
        contents[PLAN] = json_text(without_secrets(session.plan))
    if session.lock is not None:
        contents[LOCK] = json_text(session.lock)
    return contents
