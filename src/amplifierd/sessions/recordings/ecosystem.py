"""The sessions of other applications of the ecosystem, below `~/.amplifier/projects`: read in place, never changed.

They are listed, searched, shown, exported and forked like our own. Before the first turn on one it is copied into our
store, and the original stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from amplifier_foundation.paths import get_amplifier_home
from amplifier_foundation.session import EVENTS_FILENAME, METADATA_FILENAME, TRANSCRIPT_FILENAME, is_real_user_message
from amplifier_sessions.foreign_sessions import (
    foreign_directories,
    last_used,
    newest_of_each,
    read_foreign_fields,
    root_of,
)
from amplifier_sessions.index_query import Wanted, message_text
from amplifier_sessions.session_directory import read_objects
from amplifier_sessions.session_query import matches, page_of
from amplifier_system.threads import in_thread
from amplifierd.exceptions import MountPlanMissingError, SessionNotFoundError
from amplifierd.store.file_listing import below
from amplifierd.store.protocol import (
    EventPage,
    EventPlace,
    Message,
    NewSession,
    SearchHit,
    SessionPage,
    SessionQuery,
    StoredEvent,
)
from amplifierd.store.record import SessionRecord, checked_session_id

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LARGEST_COPIED_EVENTS = 64 << 20

Stamp = tuple[int, ...]
Messages = list[Message]
Events = list[StoredEvent]
Records = list[SessionRecord]
FindCopied = Callable[[Sequence[str]], Awaitable[Collection[str]]]


class EcosystemSessions:
    """A reader of one directory of projects; without one, that of `AMPLIFIER_HOME`, by default `~/.amplifier`.

    Sessions that go on elsewhere, which `find_copied` picks out of some ids, are neither listed nor found by searching.
    """

    def __init__(self, projects: Path | None = None, *, find_copied: FindCopied | None = None) -> None:
        self._find_copied = find_copied
        self._projects = (projects or get_amplifier_home() / "projects").absolute()
        self._known: dict[Path, tuple[Stamp, SessionRecord]] = {}

    async def list(self, query: SessionQuery) -> SessionPage:
        """Return a page of these sessions; `total` is how many there are in all."""
        visible = await self._visible()
        return await in_thread(lambda stop: self._page(visible, query))

    async def search(self, text: str, *, limit: int = 50) -> tuple[SearchHit, ...]:
        """Return the sessions in whose name or messages a text is found, the latest first."""
        visible = await self._visible()
        return await in_thread(lambda stop: self._hits(visible, Wanted(text), limit, stop.check))

    async def read(self, session_id: str) -> SessionRecord:
        """Return one session, with the numbers of its messages and turns.

        Raises:
            SessionNotFoundError: there is none of that id.
        """
        return await in_thread(lambda stop: self._counted(self._rooted(self._find(session_id))))

    async def read_messages(self, session_id: str) -> Messages:
        return await in_thread(lambda stop: self._messages(self._find(session_id)))

    async def read_events(self, session_id: str, *, after_seq: int = 0) -> Events:
        def read() -> Events:
            record = self._find(session_id)
            return [event for event in self._events(record) if event["seq"] > after_seq]

        return await in_thread(lambda stop: read())

    async def read_event_page(self, session_id: str, place: EventPlace) -> EventPage:
        return place.page(await self.read_events(session_id))

    async def read_plan(self, session_id: str, number: int | None = None) -> dict[str, Any]:
        """Raise `MountPlanMissingError`: these applications keep none."""
        record = await in_thread(lambda stop: self._find(session_id))
        named = f" (it was run with the bundle {record.bundle!r})" if record.bundle else ""
        raise MountPlanMissingError(
            f"session {session_id!r} of another application has no mount plan{named}",
            hint="name the profile or bundle to continue it with",
        )

    async def read_document(self, session_id: str, name: str) -> Any | None:
        return None

    async def read_parts(self, session_id: str) -> dict[str, bytes]:
        return {}

    async def descendants(self, session_id: str) -> tuple[str, ...]:
        """Return the ids of the sessions below this one in its tree, parents before their children."""

        def read() -> tuple[str, ...]:
            root = self._rooted(self._find(session_id)).root_id
            tree = [(each.session_id, each.parent_session_id) for each in self._records() if each.root_id == root]
            return below(session_id, tree)

        return await in_thread(lambda stop: read())

    async def copied(self, session_id: str, plan: Mapping[str, Any], **changes: Any) -> NewSession:
        """Return a session as it is stored here before its first turn, with the plan that it goes on with.

        `changes` are further fields of its record, such as `profile_name`. The original is only read.
        """
        return await in_thread(lambda stop: self._copied(session_id, plan, changes))

    def _copied(self, session_id: str, plan: Mapping[str, Any], changes: Mapping[str, Any]) -> NewSession:
        found = self._find(session_id)
        record, directory = self._counted(found), _directory_of(found)
        warnings = [*record.load_warnings]
        events: Events = []
        if _size(directory / EVENTS_FILENAME) > _LARGEST_COPIED_EVENTS:
            message = f"the events stay in {directory}, they are larger than {_LARGEST_COPIED_EVENTS} bytes"
            warnings.append({"code": "events-not-copied", "message": message})
        else:
            events = [*self._events(found)]
        fields = {
            **record.model_dump(),
            "origin": None,
            "imported_from": str(directory),
            "parent_session_id": None,
            "root_session_id": None,
            "load_warnings": warnings,
            **changes,
        }
        return NewSession(SessionRecord.model_validate(fields), plan, messages=self._messages(found), events=events)

    def _page(self, visible: Records, query: SessionQuery) -> SessionPage:
        wanted = None if query.text is None else Wanted(query.text)
        found = [
            record
            for record in visible
            if matches(record, query) and (wanted is None or self._find_hit(record, wanted))
        ]
        return SessionPage(tuple(map(self._counted, page_of(found, query))), total=len(found))

    def _hits(self, visible: Records, wanted: Wanted, limit: int, check: Callable[[], None]) -> tuple[SearchHit, ...]:
        newest = sorted(visible, key=last_used, reverse=True)
        hits: tuple[SearchHit, ...] = ()
        for record in newest:
            check()
            if len(hits) >= limit:
                break
            if hit := self._find_hit(record, wanted):
                hits = (*hits, hit)
        return hits

    def _find_hit(self, record: SessionRecord, wanted: Wanted) -> SearchHit | None:
        if record.name and (snippet := wanted.find(record.name)):
            return SearchHit(record, snippet)
        for message in self._messages(record):
            if snippet := wanted.find(message_text(message)):
                return SearchHit(record, snippet, message["id"], message["turn"])
        return None

    async def _visible(self) -> Records:
        records = await in_thread(lambda stop: self._records())
        if self._find_copied is None or not records:
            return records
        copied = await self._find_copied([record.session_id for record in records])
        return [record for record in records if record.session_id not in copied]

    def _records(self) -> Records:
        """Return every session; of two with one id, the one that was used last."""
        newest = newest_of_each(self._record(directory) for directory in foreign_directories(self._projects))
        return [_rooted_in(record, newest) for record in newest.values()]

    def _find(self, session_id: str) -> SessionRecord:
        checked_session_id(session_id)
        found = [self._record(directory) for directory in foreign_directories(self._projects, session_id)]
        if not found:
            raise SessionNotFoundError(f"there is no session {session_id!r} below {self._projects}")
        return max(found, key=last_used)

    def _rooted(self, record: SessionRecord) -> SessionRecord:
        """Return a record that knows the root of its tree."""
        known, each = {record.session_id: record}, record
        while (parent := each.parent_session_id) is not None and parent not in known:
            beside = _directory_of(record).parent / parent
            if not (beside / METADATA_FILENAME).exists():
                break
            known[parent] = each = self._record(beside)
        return _rooted_in(record, known)

    def _record(self, directory: Path) -> SessionRecord:
        """Return the record of a directory; what was read is kept while the files are unchanged."""
        stamp = _stamp(directory)
        known = self._known.get(directory)
        if known is None or known[0] != stamp:
            known = self._known[directory] = (stamp, _read_record(directory))
        return known[1]

    def _counted(self, record: SessionRecord) -> SessionRecord:
        messages = self._messages(record)
        turns = max((message["turn"] for message in messages), default=0)
        return record.model_copy(update={"message_count": len(messages), "turn_count": turns})

    def _messages(self, record: SessionRecord) -> Messages:
        return as_messages(read_objects(_directory_of(record) / TRANSCRIPT_FILENAME), record)

    def _events(self, record: SessionRecord) -> Iterator[StoredEvent]:
        return as_events(read_objects(_directory_of(record) / EVENTS_FILENAME), record)


def _rooted_in(record: SessionRecord, known: Mapping[str, SessionRecord]) -> SessionRecord:
    root_id = root_of(record, known)
    return record if root_id == record.session_id else record.model_copy(update={"root_session_id": root_id})


def _read_record(directory: Path) -> SessionRecord:
    fields = read_foreign_fields(directory)
    for problem in fields["load_warnings"]:
        logger.warning("%s", problem["message"])
    return SessionRecord(**fields)


def _directory_of(record: SessionRecord) -> Path:
    return Path(record.metadata["path"])


def _stamp(directory: Path) -> Stamp:
    found = []
    for name in (METADATA_FILENAME, TRANSCRIPT_FILENAME):
        try:
            status = (directory / name).stat()
            found += [status.st_mtime_ns, status.st_size]
        except OSError:
            found += [0, 0]
    return tuple(found)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


# The lines of sessions that other applications of the ecosystem keep, as lines of ours.


_ROLES = frozenset({"user", "assistant", "tool", "system"})
_OWN_KEYS = frozenset({"id", "timestamp", "ts", "role", "content", "turn", "correlation_id", "line_num"})
_EVENT_KEYS = frozenset(
    {"seq", "ts", "timestamp", "lvl", "level", "event", "session_id", "parent_id", "correlation_id", "data"}
)


def as_messages(entries: Iterable[Mapping[str, Any]], record: SessionRecord) -> list[Message]:
    """Return a transcript of ours: ids that stay the same, and the number of the turn, which a person's prompt begins.

    What a person did not write is not a user's message here; the context gets it in its own role again.
    """
    messages: list[Message] = []
    turn = 0
    for number, entry in enumerate(entries):
        role = entry.get("role")
        if not isinstance(role, str):
            continue
        is_prompt = is_real_user_message(entry)
        turn += is_prompt
        rest = {key: value for key, value in entry.items() if key not in _OWN_KEYS}
        if role not in _ROLES or (role == "user" and not is_prompt):
            metadata = rest.get("metadata")
            rest["metadata"] = {**(metadata if isinstance(metadata, dict) else {}), "requested_role": role}
            role = "system"
        stamp = entry.get("timestamp") or entry.get("ts")
        head = {
            "id": _message_id(record.session_id, number),
            "timestamp": stamp if isinstance(stamp, str) else record.created_at,
            "role": role,
            "content": _content(entry.get("content")),
            "turn": turn,
        }
        messages.append({**head, **rest})
    return messages


def as_events(entries: Iterable[Mapping[str, Any]], record: SessionRecord) -> Iterator[StoredEvent]:
    """Yield events of ours, numbered in the order of the file."""
    for seq, entry in enumerate(entries, start=1):
        event, data = entry.get("event"), entry.get("data")
        rest = {key: value for key, value in entry.items() if key not in _EVENT_KEYS}
        yield {
            "seq": seq,
            "ts": entry.get("ts") or entry.get("timestamp") or record.created_at,
            "lvl": entry.get("lvl") or entry.get("level") or "INFO",
            "event": event if isinstance(event, str) and event else "unknown",
            "session_id": record.session_id,
            "parent_id": record.parent_session_id,
            "correlation_id": entry.get("correlation_id"),
            "data": {**rest, **data} if isinstance(data, dict) else rest if data is None else {**rest, "data": data},
        }


def _content(value: Any) -> Any:
    if value is None or isinstance(value, str | list):
        return value
    return json.dumps(value, ensure_ascii=False)


def _message_id(session_id: str, number: int) -> str:
    return f"msg_{hashlib.sha256(f'{session_id}:{number}'.encode()).hexdigest()[:32]}"
