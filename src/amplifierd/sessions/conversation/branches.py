"""Sessions made of others: forks, which go on from a turn, and clones, which are copies of a whole tree."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from amplifier_foundation.session import count_turns, find_orphaned_tool_calls, slice_to_turn
from amplifier_system.permission_levels import PermissionLevel, Permissions
from amplifierd.exceptions import InvalidTurnError
from amplifierd.sessions.children import AGENT_DOCUMENT
from amplifierd.sessions.creation import Creation, SessionRequest, overrides_of
from amplifierd.sessions.events.announcements import Announcements
from amplifierd.sessions.events.tree_events import TreeEvents
from amplifierd.sessions.events.tree_history import last_cursor
from amplifierd.sessions.open_trees import APPROVALS
from amplifierd.store.protocol import Holder, Message, NewSession, SessionStore, StoredEvent
from amplifierd.store.record import SessionRecord, new_session_id, now
from amplifierd.store.whole_session import StoredLines

from .context_messages import DOCUMENT, for_other_agent
from .transcript import last_turn

if TYPE_CHECKING:
    from amplifierd.sessions.recordings.export import ReadableSessions

_LONGEST_NAME = 190
OrphanedTools = Literal["complete", "remove", "error"]

_COPIED_DOCUMENTS = (DOCUMENT, AGENT_DOCUMENT, APPROVALS)
_RESET = {"status": "active", "ended_at": None, "revision": 0, "last_error": None, "takeover": None, "stale": False}


class Branches:
    """Makes forks and clones in one store."""

    def __init__(self, store: SessionStore, holder: Holder, creation: Creation, announcements: Announcements) -> None:
        self._store, self._holder, self._creation = store, holder, creation
        self._announcements = announcements

    async def fork(
        self,
        source: ReadableSessions,
        record: SessionRecord,
        turn: int | None,
        *,
        profile: str | None = None,
        name: str | None = None,
        handle_orphaned_tools: OrphanedTools = "complete",
    ) -> SessionRecord:
        """Store a session that has the transcript of another up to a turn, and its plan or that of another profile.

        Raises:
            InvalidTurnError: there is no such turn, or it has tool calls without a result and these count as an error.
        """
        messages = await source.read_messages(record.session_id)
        latest = last_turn(messages)
        at = latest if turn is None else turn
        if not 1 <= at <= latest:
            raise InvalidTurnError(
                f"turn {at} is out of range: session {record.session_id} has {latest}",
                hint="name a turn that the session has" if latest else "run a turn first",
            )
        kept = [message for message in messages if int(message.get("turn") or 0) <= at]
        kept = _whole(kept, handle_orphaned_tools, record.session_id)
        plan, changes = await self._plan(source, record, profile)
        documents = await self._documents(record.session_id, at) if source is self._store else {}
        if profile:
            documents = {DOCUMENT: for_other_agent(documents.get(DOCUMENT))}
        moment = now()
        forked = record.changed(
            **_RESET,
            session_id=new_session_id(),
            name=name or record.name,
            parent_session_id=record.session_id,
            root_session_id=None,
            forked_from_turn=at,
            forked_at=moment,
            created_by="user",
            created_at=moment,
            started_at=moment,
            last_activity_at=moment,
            message_count=len(kept),
            turn_count=at,
            agent_invocations=0,
            usage=None,
            usage_seq=None,
            usage_tree=None,
            token_usage=None,
            permission_level=await self._level(source, record),
            **changes,
        )
        new = NewSession(forked.model_copy(update={"revision": 0}), plan, messages=kept, documents=documents)
        return await self._store_free(new)

    async def _level(self, source: ReadableSessions, record: SessionRecord) -> PermissionLevel | None:
        """The level of a fork: that of its source, within the one of the tree that this is taken from."""
        if source is not self._store or record.root_id == record.session_id:
            return record.permission_level
        root = await self._store.read(record.root_id)
        return Permissions(record.permission_level, outer=Permissions(root.permission_level)).level

    async def clone(self, record: SessionRecord, name: str | None = None) -> SessionRecord:
        """Store a copy of a session and of everything below it, under new ids."""
        ids = {record.session_id: new_session_id()}
        below = await self._store.descendants(record.session_id)
        for session_id in below:
            ids[session_id] = _child_id(session_id, ids)
        last = await last_cursor(self._store, record.root_id)
        tree = self._announcements.tree(ids[record.session_id], last)
        name = name or f"{(record.name or '')[:_LONGEST_NAME]} (copy)".strip()
        copied = await self._copy(record, ids, name, tree)
        for session_id in below:
            await self._copy(await self._store.read(session_id), ids, None, tree)
        return copied

    async def _copy(
        self, record: SessionRecord, ids: Mapping[str, str], name: str | None, tree: TreeEvents
    ) -> SessionRecord:
        own = ids[record.session_id]
        is_root = name is not None
        changes = {
            **_RESET,
            "session_id": own,
            "name": name if is_root else record.name,
            "parent_session_id": ids.get(record.parent_session_id or "", record.parent_session_id),
            "root_session_id": None if is_root else ids.get(record.root_id, record.root_session_id),
            "created_at": now(),
        }
        whole = await self._store.read_whole(record.session_id)
        new = NewSession(
            record.model_copy(update=changes),
            whole.plan,
            messages=whole.messages,
            events=StoredLines(lambda: (_renamed(event, ids) for event in whole.events)),
            documents=await self._documents(record.session_id, None),
            parts=whole.parts,
        )
        return await self._store_free(new, tree)

    async def _plan(
        self, source: ReadableSessions, record: SessionRecord, profile: str | None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        if profile is None:
            return await source.read_plan(record.session_id), {}
        working_dir = Path(record.working_dir)
        request = SessionRequest(profile=profile, working_dir=working_dir, **overrides_of(record))
        setup, plan = await self._creation.plan_for(request)
        build = setup.build
        return plan, {
            "profile_name": str(setup.profile_id),
            "bundle": None,
            "base_profile": None,
            "agent_name": None,
            "origin": None,
            "build_id": build.build_id if build else None,
        }

    async def _documents(self, session_id: str, turn: int | None) -> dict[str, Any]:
        found = {name: await self._store.read_document(session_id, name) for name in _COPIED_DOCUMENTS}
        known = found.get(DOCUMENT)
        if turn is not None and isinstance(known, Mapping):
            kept = [entry for entry in known.get("messages") or () if (entry.get("turn") or 0) <= turn]
            found[DOCUMENT] = {**known, "messages": kept}
        return {name: value for name, value in found.items() if value is not None}

    async def _store_free(self, new: NewSession, tree: TreeEvents | None = None) -> SessionRecord:
        await self._announcements.add(new, self._holder, tree)
        return new.record


def _whole(messages: Sequence[Message], handling: OrphanedTools, session_id: str) -> list[Message]:
    """Return a transcript in which every tool call has its result."""
    orphaned = find_orphaned_tool_calls(list(messages))
    if not orphaned:
        return list(messages)
    if handling == "error":
        raise InvalidTurnError(
            f"tool calls of session {session_id} have no result: {', '.join(orphaned)}",
            hint="fork with handle_orphaned_tools='complete' or 'remove'",
        )
    handled = slice_to_turn([*messages], count_turns(messages), handle_orphaned_tools=handling)
    turn = last_turn([*messages])
    return [{"id": f"msg_{uuid.uuid4().hex}", "timestamp": now(), "turn": turn, **message} for message in handled]


def _child_id(session_id: str, ids: Mapping[str, str]) -> str:
    """Return the id of a copied child: its own, with that of its copied ancestor in front."""
    for old, new in sorted(ids.items(), key=lambda item: len(item[0]), reverse=True):
        if session_id.startswith(f"{old}-"):
            return f"{new}{session_id[len(old) :]}"[:200]
    return new_session_id()


def _renamed(event: StoredEvent, ids: Mapping[str, str]) -> StoredEvent:
    return {**event, **{key: ids.get(event.get(key) or "", event.get(key)) for key in ("session_id", "parent_id")}}
