"""The sessions of a home: opened, listed, changed, branched, moved and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from amplifier_foundation.session import find_orphaned_tool_calls
from amplifier_system.tasks import run_to_end
from amplifierd.exceptions import (
    ExecutionInProgressError,
    InvalidTurnError,
)
from amplifierd.plans.agent_choice import AgentChoice
from amplifierd.plans.request import lay_over_plan
from amplifierd.profiles.builds.home_profiles import Profiles
from amplifierd.profiles.documents.inheritance import merge_sections
from amplifierd.profiles.documents.literal_secrets import KeepSecret
from amplifierd.sessions.conversation.between_turns import rewrite, switch
from amplifierd.sessions.conversation.branches import Branches, OrphanedTools
from amplifierd.sessions.conversation.interrupted_turns import InterruptedTurn, InterruptedTurns, Keep
from amplifierd.sessions.conversation.interruption import RepairReport
from amplifierd.sessions.conversation.transcript import Transcript, deletions, last_turn, new_message
from amplifierd.sessions.events.announcements import change_events
from amplifierd.sessions.layers.checkpointing import Undone, changes_of, undo_files
from amplifierd.signing_keys import SigningKeys
from amplifierd.store.protocol import (
    EventPage,
    EventPlace,
    Hold,
    Message,
    MessagePage,
    Place,
    SearchHit,
    SessionPage,
    SessionQuery,
    StoredEvent,
    TrashedSession,
)
from amplifierd.store.record import SessionRecord, checked_session_id, state_conflict

from .creation import Creation, SessionRequest, overrides_of
from .open_sessions import OpenSessions
from .runtime import Runtime
from .session_reading import SessionReader, plain_calls
from .session_removal import SessionChanges, SessionRemoval
from .session_setup import SessionSetup

if TYPE_CHECKING:
    from amplifier_foundation.sources import Progress
    from amplifierd.checkpoints import Changes, UndoResult
    from amplifierd.sessions.recordings.export import ExportedSession
    from amplifierd.sessions.recordings.replay import ReplayResult
    from amplifierd.sessions.recordings.session_archive import ArchiveLimits
    from amplifierd.sessions.recordings.session_import import ImportedSession
    from amplifierd.sessions.recordings.stored_requests import StoredRequest

Messages = list[Message]


class Sessions:
    """The sessions of one home. What only reads is plain; the rest is awaited."""

    def __init__(
        self,
        runtime: Runtime,
        creation: Creation,
        reader: SessionReader,
        opened: OpenSessions,
        *,
        profiles: Profiles,
        keys: SigningKeys,
        keep: KeepSecret,
    ) -> None:
        self.runtime, self.reader = runtime, reader
        self._creation, self._opened, self._store = creation, opened, runtime.store
        self._profiles, self._keys, self._keep = profiles, keys, keep
        self._branches = Branches(self._store, runtime.holder, creation, runtime.announcements)
        self._interrupted_turns = InterruptedTurns(self._store, runtime.holder, runtime.announcements)
        self.open, self.create, self.resume, self.close = opened.open, opened.create, opened.resume, opened.close
        self.is_open, self.checkpoints = opened.is_open, opened.checkpoints
        self.subscribe, self.listen = opened.subscribe, opened.listen
        self.default_profile, self.read_adopted = opened.default_profile, opened.read_adopted
        changes = SessionChanges(runtime, reader, opened)
        self.update, self.rename, self.tag = changes.update, changes.rename, changes.tag
        self.end, self.mark_stale = changes.end, changes.mark_stale
        self.remembered_approvals, self.revoke_approval = changes.remembered_approvals, changes.revoke_approval
        removal = SessionRemoval(runtime, reader, opened)
        self.delete, self.restore, self.purge = removal.delete, removal.restore, removal.purge
        self.empty_trash, self.cleanup = removal.empty_trash, removal.cleanup

    # --- for callers that do not await; who does uses `reader`

    def list(self, query: SessionQuery | None = None, **filters: Any) -> SessionPage:
        """A page of sessions, the latest first; `filters` are fields of a `SessionQuery`."""
        return plain_calls.run(self.reader.list(query, **filters))

    def get(self, session_id: str) -> SessionRecord:
        """A session as it is stored.

        Raises:
            SessionNotFoundError: there is none of that id.
        """
        return plain_calls.run(self.reader.get(session_id))

    def search(self, text: str, *, limit: int = 50) -> tuple[SearchHit, ...]:
        """The sessions whose name or messages contain the words of a text."""
        return plain_calls.run(self.reader.search(text, limit=limit))

    def messages(self, session_id: str) -> Sequence[Message]:
        """The transcript of a session."""
        return plain_calls.run(self.reader.messages(session_id))

    def message_page(self, session_id: str, place: Place) -> MessagePage:
        """A part of the transcript of a session."""
        return plain_calls.run(self.reader.message_page(session_id, place))

    def events(self, session_id: str, *, after_seq: int = 0) -> Sequence[StoredEvent]:
        """The events of a session, in order."""
        return plain_calls.run(self.reader.events(session_id, after_seq=after_seq))

    def event_page(self, session_id: str, place: EventPlace, *, include_children: bool = False) -> EventPage:
        """A part of the events of a session, and with `include_children` of those below it, in order."""
        return plain_calls.run(self.reader.event_page(session_id, place, include_children=include_children))

    def plan(self, session_id: str) -> dict[str, Any]:
        """The mount plan of a session, without keys that may have been written into it.

        Raises:
            MountPlanMissingError: it has none.
        """
        return plain_calls.run(self.reader.plan(session_id))

    def requests(self, session_id: str) -> Sequence[StoredRequest]:
        """The requests that were sent to providers, each part with its origin."""
        return plain_calls.run(self.reader.requests(session_id))

    def request(self, session_id: str, request_id: str) -> StoredRequest:
        """One request, with the contents of its parts."""
        return plain_calls.run(self.reader.request(session_id, request_id))

    def holder(self, session_id: str) -> Hold | None:
        """The hold of a session, None when it is free."""
        return plain_calls.run(self.reader.holder(session_id))

    def children(self, session_id: str) -> tuple[SessionRecord, ...]:
        """The sessions below one, parents before their children."""
        return plain_calls.run(self.reader.children(session_id))

    def uses_profile(self, profile_id: str) -> bool:
        """True if a session that has not ended runs a profile."""
        return plain_calls.run(self.reader.uses_profile(profile_id))

    def deleted(self) -> tuple[TrashedSession, ...]:
        """The sessions that can be restored, the last deleted first."""
        return plain_calls.run(self.reader.deleted())

    # --- branches, and other agents

    async def fork(
        self,
        session_id: str,
        turn: int | None = None,
        *,
        profile: str | None = None,
        name: str | None = None,
        handle_orphaned_tools: OrphanedTools = "complete",
    ) -> SessionRecord:
        """Store a session that goes on from a turn of another, by default its last; `profile` runs it with another one.

        Raises:
            InvalidTurnError: there is no such turn.
        """
        source = await self.reader.source_of(checked_session_id(session_id))
        record = await source.read(session_id)
        if source is self.reader.elsewhere and profile is None:
            profile = await self.default_profile()
        return await self._branches.fork(
            source, record, turn, profile=profile, name=name, handle_orphaned_tools=handle_orphaned_tools
        )

    async def clone(self, session_id: str, name: str | None = None) -> SessionRecord:
        """Store a copy of a session, with its events and its children."""
        return await self._branches.clone(await self.reader.get(session_id), name)

    async def change_profile(self, session_id: str, profile: str, *, cancel: bool = False) -> SessionRecord:
        """Let a session go on with another profile, or with the newest build of its own; its history stays.

        It waits for a running turn, or cancels it. Whatever fails leaves the session as it was.

        Raises:
            SessionStateError: the session was not started, or has ended.
        """
        record = await self._active(session_id)
        setup, plan = await self._plan_with(record, profile)
        build_id = setup.build.build_id if setup.build else None
        changes = {"profile_name": str(setup.profile_id), "bundle": None, "base_profile": None, "stale": False}
        changes["build_id"] = build_id
        data = {"from": record.profile_name or record.bundle, "to": changes["profile_name"], "build_id": build_id}
        return await self._switch(session_id, setup, plan, changes, data, cancel=cancel)

    async def plan_with(self, session_id: str, profile: str) -> Mapping[str, Any]:
        """Return the plan with which a session would go on with another profile; no module of it is loaded."""
        return (await self._plan_with(await self.reader.get(session_id), profile))[1]

    async def _plan_with(self, record: SessionRecord, profile: str) -> tuple[SessionSetup, Mapping[str, Any]]:
        working_dir = Path(record.working_dir)
        request = SessionRequest(profile=profile, working_dir=working_dir, **overrides_of(record))
        return await self._creation.plan_for(request)

    async def change_agent(
        self,
        session_id: str,
        *,
        provider: str | None = None,
        model: str | None = None,
        effort: str | None = None,
        max_iterations: int | None = None,
        cancel: bool = False,
    ) -> SessionRecord:
        """Let a session go on with another provider of its plan, model, effort or number of iterations.

        Its modules and its history stay. It waits for a running turn, or cancels it.

        Raises:
            ProviderNotInPlanError: the plan has no such provider.
            SessionStateError: the session was not started, or has ended.
        """
        record, choice = await self._active(session_id), AgentChoice(provider, model, effort, max_iterations)
        plan = await self._store.read_plan(session_id)
        given = choice.overrides(plan, self.runtime.environment, self.runtime.find_key)
        changes = {"settings_overrides": merge_sections(record.settings_overrides, given)}
        agent = record.profile_name or record.bundle
        data = {"from": agent, "to": agent, "build_id": record.build_id, **choice.told()}
        opened = self._opened.find(session_id)
        setup = opened.runner.setup if opened is not None else await self._opened.setup_of(record)
        changed = lay_over_plan(plan, given, allow_modules=False)
        return await self._switch(session_id, setup, changed, changes, data, cancel=cancel)

    async def _active(self, session_id: str) -> SessionRecord:
        record = await self.reader.get(session_id)
        if record.status != "active":
            raise state_conflict(session_id, record.status, "change its profile or agent")
        return record

    async def _switch(
        self,
        session_id: str,
        setup: SessionSetup,
        plan: Mapping[str, Any],
        changes: Mapping[str, Any],
        facts: Mapping[str, Any],
        *,
        cancel: bool,
    ) -> SessionRecord:
        """Go on with another plan, loaded or not."""
        opened = self._opened.find(session_id)
        if opened is not None:
            return await opened.change_plan(setup, plan, changes, facts, cancel=cancel)

        async def switch_unloaded(hold: Hold) -> SessionRecord:
            runner = await self._opened.runner_of(await self._store.read(session_id), hold, setup)
            try:
                return await switch(runner, setup, plan, changes, facts)
            finally:
                await run_to_end(runner.cleanup())

        return await self._opened.under_hold(session_id, switch_unloaded)

    async def append_message(self, session_id: str, role: str, content: Any, **facts: Any) -> Message:
        """Add a message to a conversation without running a turn; `facts` are `agent` and `token_count`.

        Raises:
            InvalidMessageError: its role or its content cannot be used.
            ExecutionInProgressError: a turn is running.
        """
        opened = self._opened.find(session_id)
        if opened is not None:
            return await opened.append_message(role, content, **facts)
        message = new_message(role, content, **facts)

        async def append(hold: Hold) -> Message:
            record, stored = await self._store.read(session_id), await self._store.read_messages(session_id)
            transcript = Transcript(self._store, hold, agent=record.agent_name)
            transcript.turn = last_turn(stored)
            line = await transcript.add(message, lasting=True)
            record = await self._store.update(hold, message_count=len(stored) + 1)
            await self._opened.announce(hold, record, *change_events(record, ["message_count"]))
            return line

        return await self._opened.under_hold(session_id, append)

    async def truncate(self, session_id: str, turn: int) -> SessionRecord:
        """Drop everything after a turn; 0 drops the whole conversation.

        Raises:
            ExecutionInProgressError: a turn is running.
            InvalidTurnError: there is no such turn.
        """
        await self.reader.own(session_id)
        messages = await self._store.read_messages(session_id)
        if not 0 <= turn <= last_turn(messages):
            raise InvalidTurnError(f"turn {turn} is out of range: session {session_id} has {last_turn(messages)}")
        kept = [message for message in messages if int(message.get("turn") or 0) <= turn]
        dropped = [message for message in messages if int(message.get("turn") or 0) > turn]
        return await self._rewrite(session_id, kept, dropped, turn)

    async def delete_last_message(self, session_id: str) -> Message | None:
        """Drop the last message; returns it, None when there is none. A call goes with the first of its results."""
        await self.reader.own(session_id)
        messages = await self._store.read_messages(session_id)
        if not messages:
            return None
        kept = messages[:-1]
        while find_orphaned_tool_calls(kept):
            kept.pop()
        await self._rewrite(session_id, kept, messages[len(kept) :], last_turn(kept))
        return messages[-1]

    async def _rewrite(self, session_id: str, kept: Messages, dropped: Sequence[Message], turn: int) -> SessionRecord:
        opened = self._opened.find(session_id)
        if opened is not None:
            return await rewrite(opened.runner, kept, dropped, turn)

        async def rewrite_unloaded(hold: Hold) -> SessionRecord:
            await self._store.replace_messages(hold, kept)
            changed = {"message_count": len(kept), "turn_count": turn}
            record = await self._store.update(hold, **changed)
            await self._opened.announce(hold, record, *deletions(dropped), *change_events(record, [*changed]))
            return record

        return await self._opened.under_hold(session_id, rewrite_unloaded)

    async def replay(
        self,
        session_id: str,
        *,
        profile: str | None = None,
        bundle: str | Path | None = None,
        plan: Mapping[str, Any] | None = None,
    ) -> ReplayResult:
        """Run a recorded session again, by default with its own plan, and say where it first goes another way.

        Orchestrator, context and hooks are real; no model is asked and no tool runs, and the session stays as it is.

        Raises what `create` raises for what the session is to run with.
        """
        from amplifierd.sessions.recordings.replay import (  # loaded when it is used, as what follows
            ReplaySource,
            replay,
        )

        source = ReplaySource(profile, None if bundle is None else str(bundle), plan)
        return await replay(self.runtime, self._creation, checked_session_id(session_id), source)

    async def repair(self, session_id: str) -> RepairReport:
        """Make a session whole that a crash broke off in a turn, as resuming it does, and say what was done."""
        async with self.resume(session_id) as session:
            return session.repaired

    async def mark_interrupted(self, *keep: Keep) -> Sequence[InterruptedTurn]:
        """Mark and tell all turns that ended with the process that ran them, and say what is to follow.

        Before that, `keep` hears what is to follow.
        """
        return await self._interrupted_turns.mark_all(*keep)

    async def take_over(self, session_id: str, *keep: Keep) -> InterruptedTurn | None:
        """Take a session from a process that is gone; a turn that ended with it is marked and told.

        Before that, `keep` hears what is to follow.

        Raises:
            SessionHeldError: the process is there.
        """
        return await self._interrupted_turns.take_over(checked_session_id(session_id), *keep)

    async def free(self, session_id: str) -> None:
        """Take a session from whatever holds it, and let it go; a process that still lives cannot write it any more.

        It is a person's word that the holder counts for nothing.

        Raises:
            SessionNotFoundError: there is none of that id.
        """
        hold = await self._store.acquire(checked_session_id(session_id), self.runtime.holder, take_over=True)
        await self._store.release(hold)

    # --- what turns did to files

    async def changes(self, session_id: str, turn: int) -> Changes:
        """Return what a turn changed in the working directory: `added`, `modified`, `deleted`, and a `diff`.

        Raises:
            InvalidTurnError: there is no checkpoint of that turn.
        """
        return await changes_of(self.checkpoints(await self.reader.get(session_id)), turn)

    async def undo(
        self, session_id: str, turn: int, *, what: Undone = "both", force: bool = False
    ) -> UndoResult | None:
        """Take back what a turn changed, in the files, in the conversation, or in both.

        Files that someone else has changed since are listed in the result, and nothing at all is touched unless
        `force` is set. The conversation ends before the turn afterwards. Returns None when only that is undone.

        Raises:
            InvalidTurnError: there is no such turn, or no checkpoint of it.
            ExecutionInProgressError: a turn is running.
            SessionHeldError: another process holds the session.
        """
        async with self._opened.trees.held(
            (await self.reader.get(session_id)).root_id
        ):  # its files are used by this process alone
            return await self._undo(session_id, turn, what, force=force)

    async def _undo(self, session_id: str, turn: int, what: Undone, *, force: bool) -> UndoResult | None:
        opened = self._opened.find(session_id)
        if opened is not None and opened.runner.status.is_busy:
            raise ExecutionInProgressError(
                f"session {session_id} is executing a turn", hint="wait for it, or cancel it"
            )
        undone: UndoResult | None = None
        if what != "conversation":
            undone = await undo_files(self.checkpoints(await self.reader.get(session_id)), turn, force=force)
            if not undone.done:
                return undone
        if what != "files":
            await self.truncate(session_id, turn - 1)
        return undone

    # --- files that travel

    async def export(
        self, session_id: str, path: str | Path, *, mask_messages: bool = False, progress: Progress | None = None
    ) -> ExportedSession:
        """Write a session and its children to one file, signed by this home; `progress` hears how far it is.

        Raises:
            SessionNotFoundError: there is no such session.
        """
        from amplifierd.sessions.recordings.export import export_session

        source = await self.reader.source_of(checked_session_id(session_id))
        return await export_session(
            source,
            session_id,
            Path(path),
            self._keys,
            self.runtime.secrets,
            find_lock=self._find_lock,
            mask_messages=mask_messages,
            progress=progress,
        )

    async def import_(
        self, path: str | Path, *, limits: ArchiveLimits | None = None, progress: Progress | None = None
    ) -> ImportedSession:
        """Store the sessions of an exported file; those of a signer that this home does not trust are not `verified`.

        `limits` say how much is unpacked at most; `progress` hears how far it is.

        Raises:
            SessionImportError: the file was changed, damaged or made by something else; nothing is stored.
        """
        from amplifierd.sessions.recordings.session_import import import_session

        return await import_session(
            Path(path),
            self._store,
            self.runtime.holder,
            self._keys,
            self.runtime.announcements,
            self._keep,
            paths=self.runtime.paths,
            working_dir=Path(self.runtime.settings.working_dir),
            limits=limits,
            progress=progress,
        )

    def _find_lock(self, record: SessionRecord) -> Mapping[str, Any] | None:
        """Return the lock of the build that a session runs on."""
        if record.profile_name is None:
            return None
        build = self._profiles.find_build(record.profile_name, record.build_id)
        return build.lock.data if build is not None else None
