"""The sessions of a home: created, opened, listed, branched and removed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from amplifier_core.display import DisplaySystem
from amplifierd.exceptions import (
    ExecutionInProgressError,
    InvalidTurnError,
    SessionHeldError,
    SessionNotFoundError,
    SessionStateError,
)
from amplifierd.limits import Limits
from amplifierd.session_store.protocol import (
    Hold,
    Message,
    SearchHit,
    SessionPage,
    SessionQuery,
    StoredEvent,
)
from amplifierd.session_store.record import SessionRecord, SessionState, checked_session_id, now

from .approvals import ApprovalQueue
from .approvers import Approver, DenyAll
from .branches import Branches, OrphanedTools
from .calls import CallLayer
from .context_messages import DOCUMENT
from .creation import Creation, SessionRequest
from .equipment import Equipment
from .interruption import RepairReport, repair
from .runner import ExecutionRunner
from .runtime import Runtime
from .session import Session, SessionOpening
from .synchronously import now_or_in_thread
from .transcript import Transcript, last_turn
from .tree import SessionTree
from .tree_budget import TreeBudget
from .tree_events import TreeEvents
from .usage import Usage

T = TypeVar("T")

_ENDED: tuple[SessionState, ...] = ("completed", "failed", "terminated")
_CHANGEABLE = frozenset({"name", "tags", "metadata", "working_dir", "limits"})
APPROVALS = "approvals"


class Sessions:
    """The sessions of one home. What only reads is plain; the rest is awaited."""

    def __init__(
        self,
        runtime: Runtime,
        creation: Creation,
        *,
        default_profile: Callable[[], Awaitable[str]],
        default_working_dir: Callable[[], Path],
    ) -> None:
        self.runtime, self._creation = runtime, creation
        self._default_profile, self._default_working_dir = default_profile, default_working_dir
        self._store = runtime.store
        self._branches = Branches(runtime.store, runtime.holder, creation)
        self._open: dict[str, Session] = {}
        self._users: dict[str, int] = {}
        self._opening = asyncio.Lock()

    # --- reading

    def list(self, query: SessionQuery | None = None, **filters: Any) -> SessionPage:
        """Return a page of sessions, the latest first; `filters` are fields of a `SessionQuery`."""
        wanted = query or SessionQuery(**filters)
        return now_or_in_thread(lambda: self._store.list(wanted))

    def get(self, session_id: str) -> SessionRecord:
        """Return a session as it is stored.

        Raises:
            SessionNotFoundError: there is none of that id.
        """
        return now_or_in_thread(lambda: self._store.read(checked_session_id(session_id)))

    def search(self, text: str, *, limit: int = 50) -> tuple[SearchHit, ...]:
        """Return the sessions whose name or messages contain the words of a text."""
        return now_or_in_thread(lambda: self._store.search(text, limit=limit))

    def messages(self, session_id: str) -> Sequence[Message]:
        """Return the transcript of a session."""
        return now_or_in_thread(lambda: self._store.read_messages(checked_session_id(session_id)))

    def events(self, session_id: str, *, after_seq: int = 0) -> Sequence[StoredEvent]:
        """Return what happened in a session, in order."""
        return now_or_in_thread(lambda: self._store.read_events(checked_session_id(session_id), after_seq=after_seq))

    def plan(self, session_id: str) -> dict[str, Any]:
        """Return the mount plan of a session."""
        return now_or_in_thread(lambda: self._store.read_plan(checked_session_id(session_id)))

    def holder(self, session_id: str) -> Hold | None:
        """Return who holds a session, None when it is free."""
        return now_or_in_thread(lambda: self._store.holder_of(checked_session_id(session_id)))

    def find_open(self, session_id: str) -> Session | None:
        """Return a session that is open in this process."""
        return self._open.get(session_id)

    # --- opening

    def open(
        self,
        profile: str | None = None,
        *,
        bundle: str | Path | None = None,
        plan: Mapping[str, Any] | None = None,
        working_dir: str | Path | None = None,
        approver: Approver | None = None,
        display: DisplaySystem | None = None,
        **options: Any,
    ) -> SessionOpening:
        """Create a session and open it: `async with home.sessions.open("foundation/offline") as session:`.

        It runs a profile, a bundle or a plan, by default the home's default profile. `approver` answers what the
        session asks; without one everything that would be asked about is denied. Further options are those of
        `create`. If the session cannot be started, nothing is left of it.

        Raises what `create` raises, and `RuntimeError` when a module that it cannot do without is broken.
        """
        request = self._request(profile, bundle, plan, working_dir, options)
        return SessionOpening(self._create_and_open(request, approver or DenyAll(), display))

    async def create(
        self,
        profile: str | None = None,
        *,
        bundle: str | Path | None = None,
        plan: Mapping[str, Any] | None = None,
        working_dir: str | Path | None = None,
        **options: Any,
    ) -> SessionRecord:
        """Store a session without starting it.

        `options` are `session_id`, `name`, `overrides`, `form`, `limits`, `metadata`, `tags`, `owner`, `start`.

        Raises:
            MountPlanError: the plan breaks rules.
            SessionExistsError: the id is taken.
            ProfileError, BundleError: what it should run cannot be used.
        """
        new, _ = await self._creation.prepare(await self._request(profile, bundle, plan, working_dir, options))
        hold = await self._store.create(new, self.runtime.holder)
        await self._store.release(hold)
        return await self._store.read(new.record.session_id)

    def resume(
        self,
        session_id: str,
        *,
        approver: Approver | None = None,
        display: DisplaySystem | None = None,
        take_over: bool = False,
        layers: Sequence[CallLayer] = (),
    ) -> SessionOpening:
        """Open a stored session: `async with home.sessions.resume(session_id) as session:`.

        What a crash left is repaired and reported in `session.repaired`. One that is open in this process already is
        that very session. An ended one becomes active again. `take_over` takes it from a process that still lives.

        Raises:
            SessionNotFoundError: there is none of that id.
            SessionHeldError: another process holds it.
            MountPlanMissingError: its plan is gone.
        """
        return SessionOpening(
            self._resume(checked_session_id(session_id), approver or DenyAll(), display, take_over, layers)
        )

    async def _request(
        self,
        profile: str | None,
        bundle: str | Path | None,
        plan: Mapping[str, Any] | None,
        working_dir: str | Path | None,
        options: Mapping[str, Any],
    ) -> SessionRequest:
        if profile is None and bundle is None and plan is None:
            profile = str(await self._default_profile())
        directory = _absolute(working_dir) if working_dir else self._default_working_dir()
        limits = Limits.read(options.get("limits")).within(Limits.read(self.runtime.settings.sessions.limits))
        given = {**options, "limits": limits, "tags": tuple(options.get("tags") or ())}
        return SessionRequest(
            profile=profile, bundle=None if bundle is None else str(bundle), plan=plan, working_dir=directory, **given
        )

    async def _create_and_open(
        self, asked: Awaitable[SessionRequest], approver: Approver, display: DisplaySystem | None
    ) -> Session:
        request = await asked
        if not request.working_dir.is_dir():
            raise SessionStateError(
                f"the working directory {request.working_dir} is not a directory", hint="create it, or name another"
            )
        new, equipment = await self._creation.prepare(request)
        hold = await self._store.create(new, self.runtime.holder)
        try:
            tree = await self._tree(new.record, hold, approver, display)
            return await self._start(new.record, hold, tree, equipment, ())
        except BaseException:
            await self._store.delete(hold)
            raise

    async def _resume(
        self,
        session_id: str,
        approver: Approver,
        display: DisplaySystem | None,
        take_over: bool,
        layers: Sequence[CallLayer],
    ) -> Session:
        async with self._opening:
            if (known := self._open.get(session_id)) is not None:
                self._users[session_id] += 1
                return known
            record = await self._store.read(session_id)
            hold = await self._store.acquire(session_id, self.runtime.holder, take_over=take_over)
            try:
                if record.status in _ENDED:
                    record = await self._store.update(hold, status="active", ended_at=None)
                equipment = await self.runtime.outfitter.of_record(record)
                equipment = await self._as_agent(record, equipment)
                tree = await self._tree(record, hold, approver, display)
                return await self._start(record, hold, tree, equipment, layers)
            except BaseException:
                await self._store.release(hold)
                raise

    async def _as_agent(self, record: SessionRecord, equipment: Equipment) -> Equipment:
        """Return the equipment of a child that is opened on its own."""
        if record.created_by != "agent":
            return equipment
        agent = await self._store.read_document(record.session_id, "agent") or {}
        return equipment.for_agent(record.agent_name or "self", str(agent.get("instruction") or ""), equipment.bundle)

    async def _tree(
        self, record: SessionRecord, hold: Hold, approver: Approver, display: DisplaySystem | None
    ) -> SessionTree:
        """Return what a session shares with its children, with what the whole tree used so far."""
        root = record if record.root_id == record.session_id else await self._store.read(record.root_id)
        last, used = 0, Usage()
        for session_id in (root.session_id, *await self._store.descendants(root.session_id)):
            last = max(last, await self._store.last_seq(session_id))
            member = await self._store.read(session_id)
            agent = member.agent_name if member.created_by == "agent" else None
            used += Usage.from_json(member.usage).for_agent(agent)

        async def emit(event: str, data: dict[str, Any]) -> None:
            asking = tree.runners.get(str(data.get("session_id"))) or tree.runners.get(record.session_id)
            if asking is not None:
                await asking.journal.write(event, data)

        async def load() -> Any:
            return await self._store.read_document(record.session_id, APPROVALS)

        async def save(value: Any) -> None:
            await self._store.put_document(hold, APPROVALS, value)

        approvals = ApprovalQueue(record.session_id, emit=emit, load=load, save=save, approver=approver)
        budget = TreeBudget(Limits.read(root.limits), used)
        tree = SessionTree(TreeEvents(root.session_id, last), budget, approvals, display)
        return tree

    async def _start(
        self, record: SessionRecord, hold: Hold, tree: SessionTree, equipment: Equipment, layers: Sequence[CallLayer]
    ) -> Session:
        runner = ExecutionRunner(
            self.runtime, record.session_id, hold=hold, record=record, tree=tree, equipment=equipment, layers=layers
        )
        await runner.start()
        session = Session(runner, self._close)
        self._open[record.session_id] = session
        self._users[record.session_id] = 1
        return session

    async def _close(self, session: Session) -> None:
        session_id = session.session_id
        self._users[session_id] = self._users.get(session_id, 1) - 1
        if self._users[session_id] > 0:
            return
        self._users.pop(session_id, None)
        self._open.pop(session_id, None)
        await session.runner.cleanup()

    # --- changing

    async def update(self, session_id: str, **changes: Any) -> SessionRecord:
        """Change `name`, `tags`, `metadata`, `working_dir` or `limits` of a session; an empty name clears it.

        Raises:
            SessionStateError: another field is named, or a value cannot be used.
            SessionHeldError: another process holds the session.
        """
        unknown = set(changes) - _CHANGEABLE
        if unknown:
            raise SessionStateError(
                f"{', '.join(sorted(unknown))} of a session cannot be changed",
                hint=f"these can: {', '.join(sorted(_CHANGEABLE))}",
            )
        if "name" in changes:
            changes["name"] = changes["name"] or None
        if "limits" in changes:
            changes["limits"] = Limits.read(changes["limits"]).to_json() or None
        opened = self._open.get(session_id)
        if opened is not None:
            return await opened.runner.change(**changes)
        return await self._under_hold(session_id, lambda hold: self._store.update(hold, **changes))

    async def rename(self, session_id: str, name: str | None) -> SessionRecord:
        return await self.update(session_id, name=name)

    async def tag(self, session_id: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> SessionRecord:
        """Add and remove tags."""
        present = [tag for tag in self.get(session_id).tags if tag not in remove]
        return await self.update(session_id, tags=[*dict.fromkeys([*present, *add])])

    async def end(self, session_id: str, status: SessionState = "completed", **details: Any) -> SessionRecord:
        """End a session and everything below it; `details` are `error_message` and `error_details` of a failed one.

        Raises:
            SessionStateError: it was never started, has ended, or the status is not an end.
        """
        record = self.get(session_id)
        if status not in _ENDED or record.status != "active":
            raise SessionStateError(
                f"session {session_id} is {record.status} and cannot become {status}",
                hint="an active session can become completed, failed or terminated",
            )
        for below in reversed(await self._store.descendants(session_id)):
            if (await self._store.read(below)).status == "active":
                await self.end(below, status)
        await self._unload(session_id)
        ended = {"status": status, "ended_at": now(), **details}
        return await self._under_hold(session_id, lambda hold: self._store.update(hold, **ended))

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
        record = self.get(session_id)
        return await self._branches.fork(
            record, turn, profile=profile, name=name, handle_orphaned_tools=handle_orphaned_tools
        )

    async def clone(self, session_id: str, name: str | None = None) -> SessionRecord:
        """Store a copy of a session, with its events and its children."""
        return await self._branches.clone(self.get(session_id), name)

    async def change_profile(self, session_id: str, profile: str, *, cancel: bool = False) -> SessionRecord:
        """Let a session go on with another profile, or with the newest build of its own; its history stays.

        It waits for a running turn, or cancels it. Whatever fails leaves the session as it was.

        Raises:
            SessionStateError: the session has ended.
        """
        record = self.get(session_id)
        if record.status != "active":
            raise SessionStateError(f"session {session_id} is {record.status}", hint="resume it first")
        working_dir = Path(record.working_dir)
        request = SessionRequest(profile=profile, working_dir=working_dir, overrides=record.settings_overrides)
        equipment, plan = await self._creation.plan_for(request)
        build_id = equipment.build.build_id if equipment.build else None
        changes = {"profile_name": str(equipment.profile_id), "bundle": None, "build_id": build_id, "stale": False}
        told = {"from": record.profile_name or record.bundle, "to": changes["profile_name"], "build_id": build_id}
        opened = self._open.get(session_id)
        if opened is not None:
            return await opened.change_plan(equipment, plan, changes, told, cancel=cancel)

        async def switch(hold: Hold) -> SessionRecord:
            await self._store.switch_plan(hold, plan, {DOCUMENT: None}, **changes)
            return await self._store.read(session_id)

        return await self._under_hold(session_id, switch)

    async def truncate(self, session_id: str, turn: int) -> SessionRecord:
        """Drop everything after a turn; 0 drops the whole conversation.

        Raises:
            ExecutionInProgressError: a turn is running.
            InvalidTurnError: there is no such turn.
        """
        messages = await self._store.read_messages(session_id)
        if not 0 <= turn <= last_turn(messages):
            raise InvalidTurnError(f"turn {turn} is out of range: session {session_id} has {last_turn(messages)}")
        kept = [message for message in messages if int(message.get("turn") or 0) <= turn]
        return await self._rewrite(session_id, kept, turn)

    async def delete_last_message(self, session_id: str) -> Message | None:
        """Drop the last message; returns it, None when there is none."""
        messages = await self._store.read_messages(session_id)
        if not messages:
            return None
        kept = messages[:-1]
        await self._rewrite(session_id, kept, last_turn(kept))
        return messages[-1]

    async def _rewrite(self, session_id: str, messages: Sequence[Message], turn: int) -> SessionRecord:
        opened = self._open.get(session_id)
        if opened is not None:
            return await opened.runner.rewrite([*messages], turn)

        async def rewrite(hold: Hold) -> SessionRecord:
            await self._store.replace_messages(hold, messages)
            return await self._store.update(hold, message_count=len(messages), turn_count=turn)

        return await self._under_hold(session_id, rewrite)

    async def repair(self, session_id: str) -> RepairReport:
        """Make a transcript whole that a crash left with unanswered tool calls, and say what was done."""
        if (opened := self._open.get(session_id)) is not None:
            return opened.repaired

        async def mend(hold: Hold) -> RepairReport:
            messages = await self._store.read_messages(session_id)
            events = await self._store.read_events(session_id)
            found = await repair(session_id, messages, events, Transcript(self._store, hold))
            if found.rewritten is not None:
                await self._store.replace_messages(hold, found.rewritten)
            elif found.added:
                await self._store.append_messages(hold, found.added, lasting=True)
            return found.report

        return await self._under_hold(session_id, mend)

    async def delete(self, session_id: str, *, force: bool = False) -> None:
        """Remove a session and everything below it.

        Raises:
            ExecutionInProgressError: a turn is running, and `force` is not set.
            SessionHeldError: another process holds it.
        """
        opened = self._open.get(session_id)
        if opened is not None and opened.activity != "idle" and not force:
            raise ExecutionInProgressError(f"session {session_id} is executing a turn", hint="cancel it, or use force")
        for below in reversed(await self._store.descendants(session_id)):
            await self._unload(below)
            await self._store.delete(await self._store.acquire(below, self.runtime.holder))
        await self._unload(session_id)
        await self._store.delete(await self._store.acquire(session_id, self.runtime.holder))

    async def cleanup(self, older_than_days: float = 30, *, dry_run: bool = False) -> Sequence[str]:
        """Remove ended sessions that are older than some days; returns their ids. Active ones stay."""
        oldest = (datetime.now(UTC) - timedelta(days=older_than_days)).isoformat().replace("+00:00", "Z")
        old: tuple[str, ...] = ()
        for status in ("created", *_ENDED):
            page = await self._store.list(SessionQuery(status=status, sort="created_at", limit=1_000_000))
            old += tuple(r.session_id for r in page.sessions if (r.ended_at or r.created_at) < oldest)
        if not dry_run:
            for session_id in old:
                with suppress(SessionNotFoundError, SessionHeldError):  # gone with its parent, or in use
                    await self.delete(session_id)
        return old

    async def _unload(self, session_id: str) -> None:
        if (opened := self._open.get(session_id)) is not None:
            self._users[session_id] = 1
            await opened.close()

    async def _under_hold(self, session_id: str, work: Callable[[Hold], Awaitable[T]]) -> T:
        hold = await self._store.acquire(checked_session_id(session_id), self.runtime.holder)
        try:
            return await work(hold)
        finally:
            await self._store.release(hold)

    def uses_profile(self, profile_id: str) -> bool:
        """Say whether a session that has not ended runs a profile."""
        return self.list(profile_name=str(profile_id), status="active", limit=1).total > 0

    async def close(self) -> None:
        """Close every open session and the store."""
        for session in tuple(self._open.values()):
            self._users[session.session_id] = 1
            await session.close()
        await self._store.close()


def _absolute(path: str | Path) -> Path:
    return Path(path).expanduser().absolute()
