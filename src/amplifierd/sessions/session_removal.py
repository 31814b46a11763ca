"""Changing the records of sessions; removing sessions, into the trash or for good, and bringing them back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from amplifierd.exceptions import (
    ApprovalNotFoundError,
    ExecutionInProgressError,
    SessionHeldError,
    SessionNotFoundError,
    SessionStateError,
)
from amplifierd.limits import Limits
from amplifierd.sessions.conversation.between_turns import move
from amplifierd.sessions.events.announcements import RESTORED, change_events, described
from amplifierd.sessions.questions.lasting_approvals import (
    LastingApprovals,
    RememberedApproval,
    decisions_in,
    remembered_in,
)
from amplifierd.store.file_listing import below
from amplifierd.store.protocol import Hold, SessionQuery, TrashedSession
from amplifierd.store.record import SessionRecord, SessionState, checked_session_id, now, state_conflict

from .open_sessions import ENDED, OpenSessions, absolute_directory
from .open_trees import APPROVALS
from .runtime import Runtime
from .session_reading import SessionReader

_CHANGEABLE = frozenset(
    {"name", "tags", "metadata", "working_dir", "working_dir_scope", "limits", "on_takeover", "permission_level"}
)


class SessionChanges:
    """Changes the records of sessions, loaded or not."""

    def __init__(self, runtime: Runtime, reader: SessionReader, opened: OpenSessions) -> None:
        self._runtime, self._reader, self._opened, self._store = runtime, reader, opened, runtime.store

    async def update(
        self, session_id: str, *, annotations: Mapping[str, Any] | None = None, **changes: Any
    ) -> SessionRecord:
        """Change `name`, `tags`, `metadata`, `working_dir`, `limits`, `on_takeover` or `permission_level`.

        An empty name clears it. Whoever calls this speaks for a person: the level may become wider.

        `working_dir_scope` says which machines have the working directory; a new directory is on this one.

        `annotations` change single keys of the metadata, whatever the others are at that moment; None removes one.

        Raises:
            SessionStateError: another field is named, or a value cannot be used.
            SessionHeldError: another process holds the session.
            ExecutionInProgressError: a turn is running, and `working_dir` is to change.
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
        if "working_dir" in changes:
            changes["working_dir"] = str(absolute_directory(changes["working_dir"]))
            changes |= self._runtime.machine.place_of(changes["working_dir"], changes.get("working_dir_scope"))

        def changed(record: SessionRecord) -> Mapping[str, Any]:
            found = dict(changes)
            if "working_dir_scope" in changes and "working_dir" not in changes:
                machine = self._runtime.machine.with_directory_of(record)
                found |= machine.place_of(record.working_dir, changes["working_dir_scope"])
            if annotations is None:
                return found
            merged = {**changes.get("metadata", record.metadata), **annotations}
            return {**found, "metadata": {key: value for key, value in merged.items() if value is not None}}

        return await self._change(session_id, changed)

    async def _change(self, session_id: str, find: Callable[[SessionRecord], Mapping[str, Any]]) -> SessionRecord:
        """Change the fields that `find` returns for the record as it is at that moment."""

        async def change(hold: Hold) -> SessionRecord:
            changes = find(await self._store.read(session_id))
            record = await self._store.update(hold, **changes)
            await self._opened.announce(hold, record, *change_events(record, [*changes]))
            return record

        async with self._opened.alone(checked_session_id(session_id)):
            runner = self._opened.find_runner(session_id)
            if runner is None:
                return await self._opened.held(session_id, change)
            changes = dict(find(runner.record))
            if directory := changes.pop("working_dir", None):
                await move(runner, Path(directory))
                runner.checkpoints = await self._opened.checkpoints_of(runner)
            return await runner.change(**changes) if changes else runner.record

    async def remembered_approvals(self, session_id: str) -> list[RememberedApproval]:
        """What was answered with "always", as far as it counts in a session.

        Raises:
            SettingsError: the home's list is damaged.
        """
        record = await self._reader.own(checked_session_id(session_id))
        document = await self._store.read_document(record.root_id, APPROVALS)
        lasting = LastingApprovals(self._runtime.paths, record.working_dir)
        return [*remembered_in(document), *await asyncio.to_thread(lasting.remembered)]

    async def revoke_approval(self, session_id: str, approval_id: str) -> None:
        """Have the calls that an "always" stands for asked about again, from the next one on.

        Raises:
            ApprovalNotFoundError: there is none of that id.
        """
        known = {one.approval_id: one for one in await self.remembered_approvals(session_id)}
        if (approval := known.get(approval_id)) is None:
            raise ApprovalNotFoundError(f"nothing that is remembered has the id {approval_id!r}", hint="list them")
        record = await self._reader.own(session_id)
        if approval.reach == "session":

            async def forget(hold: Hold) -> None:
                document = await self._store.read_document(record.root_id, APPROVALS)
                kept = {key: one for key, one in decisions_in(document).items() if key != approval.scope.key}
                await self._store.put_document(hold, APPROVALS, {**(document or {}), "decisions": kept})

            await self._opened.under_hold(record.root_id, forget)
        else:
            await asyncio.to_thread(LastingApprovals(self._runtime.paths, record.working_dir).remove, approval)
        if (tree := self._opened.trees.find(record.root_id)) is not None:
            for runner in tree.runners.values():
                runner.forget_approval(approval.scope.key)

    async def mark_stale(self, session_id: str, newer_build: str) -> SessionRecord:
        """Take note that there is a newer build of a session's profile; the session goes on with its own."""
        stale = ("session:stale", {"build_id": newer_build})

        async def mark(hold: Hold) -> SessionRecord:
            record = await self._store.update(hold, stale=True)
            await self._opened.announce(hold, record, *change_events(record, ["stale"]), stale)
            return record

        async with self._opened.alone(checked_session_id(session_id)):
            runner = self._opened.find_runner(session_id)
            if runner is None:
                return await self._opened.held(session_id, mark)
            await runner.change(stale=True)
            await runner.journal.write(*stale)
            return runner.record

    async def rename(self, session_id: str, name: str | None) -> SessionRecord:
        return await self.update(session_id, name=name)

    async def tag(self, session_id: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> SessionRecord:
        """Add and remove tags."""

        def tagged(record: SessionRecord) -> dict[str, Any]:
            present = [tag for tag in record.tags if tag not in remove]
            return {"tags": [*dict.fromkeys([*present, *add])]}

        return await self._change(session_id, tagged)

    async def end(self, session_id: str, status: SessionState = "completed", **details: Any) -> SessionRecord:
        """End a session and everything below it; `details` are `error_message` and `error_details` of a failed one.

        Raises:
            SessionStateError: it was never started, has ended, or the status is not an end.
        """
        record = await self._reader.own(session_id)
        if status not in ENDED or record.status != "active":
            raise state_conflict(session_id, record.status, f"become {status}")
        await self._opened.unload(session_id)  # first, so that it delegates nothing any more
        for lower in reversed(await self._store.descendants(session_id)):
            if (await self._store.read(lower)).status == "active":
                await self.end(lower, status)
        ended = {"status": status, "ended_at": now(), **details}
        return await self._change(session_id, lambda record: ended)


_KEPT_DAYS = 30.0


class SessionRemoval:
    """Removes sessions and brings them back, each with everything below it."""

    def __init__(self, runtime: Runtime, reader: SessionReader, opened: OpenSessions) -> None:
        self._runtime, self._reader, self._opened, self._store = runtime, reader, opened, runtime.store

    async def delete(self, session_id: str, *, force: bool = False, forever: bool = False) -> None:
        """Move a session and everything below it into the trash; with `forever` nothing is left of them.

        Where the setting `sessions.trash_days` is 0 there is no trash.

        Raises:
            SessionStateError: another application keeps it.
            ExecutionInProgressError: a turn is running, and `force` is not set.
            SessionHeldError: another process holds it.
        """
        await self._reader.own(session_id)
        forever = forever or not self._runtime.settings.sessions.trash_days
        for member in (session_id, *await self._store.descendants(session_id)):
            runner = self._opened.find_runner(member)
            if runner is not None and runner.status.is_busy and not force:
                raise ExecutionInProgressError(f"session {member} is executing a turn", hint="cancel it, or use force")
        await self._opened.unload(session_id)  # first, so that it delegates nothing any more
        whole_tree = (session_id, *await self._store.descendants(session_id))
        for member in whole_tree[1:]:
            await self._opened.unload(member)
        holds: list[Hold] = []
        top = await self._reader.get(session_id)
        root_id = top.root_id
        if forever:
            await self._purge_below(top)
        async with self._opened.trees.held(root_id) as root_hold:
            try:
                for member in whole_tree:
                    own = member == root_id
                    holds.append(root_hold if own else await self._store.acquire(member, self._runtime.holder))
                while holds:
                    record = await self._reader.get(holds[-1].session_id)
                    await self._runtime.announcements.delete(holds[-1], record, forever=forever)
                    holds.pop()
            finally:
                for hold in holds:
                    if hold is not root_hold:
                        await self._store.release(hold)

    async def restore(self, session_id: str) -> SessionRecord:
        """Bring a deleted session back, with everything below it that is in the trash.

        Raises:
            SessionNotFoundError: it is not in the trash.
            SessionExistsError: there is one of that id again.
            SessionStateError: it belongs to a session that is in the trash itself.
        """
        trashed = await self._trashed(session_id)
        record = trashed[session_id]
        if record.root_id != session_id and record.root_id in trashed:
            raise SessionStateError(
                f"session {session_id} belongs to {record.root_id}, which is deleted, too",
                hint=f"restore {record.root_id}",
            )
        for member in reversed((session_id, *_below(record, trashed))):  # so that a second attempt finds the rest
            await self._store.restore(member)
        for member in (session_id, *_below(record, trashed)):
            await self._announce_restored(member)
        return await self._store.read(session_id)

    async def _announce_restored(self, session_id: str) -> None:
        async def tell(hold: Hold) -> None:
            record = await self._store.read(session_id)
            await self._opened.announce(hold, record, (RESTORED, described(record)))

        await self._opened.under_hold(session_id, tell)

    async def purge(self, session_id: str) -> None:
        """Remove a deleted session for good, with everything below it that is in the trash.

        Raises:
            SessionNotFoundError: it is not in the trash.
        """
        trashed = await self._trashed(session_id)
        await self._purge_below(trashed[session_id])
        await self._store.purge(session_id)

    async def _purge_below(self, record: SessionRecord) -> None:
        """Leave nothing in the trash that could not be restored any more, since what it belongs to is gone."""
        trashed = _by_id(await self._store.trash())
        for member in reversed(_below(record, trashed)):
            await self._store.purge(member)

    async def _trashed(self, session_id: str) -> dict[str, SessionRecord]:
        """Return what is in the trash by its ids, a certain session among it."""
        checked_session_id(session_id)
        found = _by_id(await self._store.trash())
        if session_id not in found:
            raise SessionNotFoundError(
                f"there is no deleted session {session_id!r}", hint="list those that can be restored"
            )
        return found

    async def empty_trash(self, older_than_days: float | None = None, *, dry_run: bool = False) -> Sequence[str]:
        """Remove for good what was deleted some days ago; returns the ids.

        Without a number the setting `sessions.trash_days` counts.
        """
        kept_for = self._runtime.settings.sessions.trash_days if older_than_days is None else older_than_days
        oldest = _days_ago(kept_for)
        old = dict.fromkeys(one.record.session_id for one in await self._store.trash() if one.deleted_at < oldest)
        for session_id in () if dry_run else old:
            with suppress(SessionNotFoundError):  # another process has just removed or restored it
                await self._store.purge(session_id, before=oldest)
        return tuple(old)

    async def cleanup(self, older_than_days: float | None = None, *, dry_run: bool = False) -> Sequence[str]:
        """Remove for good ended sessions that are older than some days; returns their ids. Active ones stay.

        Without a number the setting `sessions.retention_days` counts, else 30 days.
        """
        if older_than_days is None:
            kept_for = self._runtime.settings.sessions.retention_days
            older_than_days = _KEPT_DAYS if kept_for is None else kept_for
        oldest = _days_ago(older_than_days)
        old: tuple[str, ...] = ()
        for status in ("created", *ENDED):
            page = await self._store.list(SessionQuery(status=status, sort="created_at", limit=1_000_000))
            old += tuple(r.session_id for r in page.sessions if (r.ended_at or r.created_at) < oldest)
        if not dry_run:
            for session_id in old:
                with suppress(SessionNotFoundError, SessionHeldError):  # gone with its parent, or in use
                    await self.delete(session_id, forever=True)
        return old


def _by_id(trashed: Sequence[TrashedSession]) -> dict[str, SessionRecord]:
    """Return deleted sessions by their ids; of several of one id, the last."""
    return {one.record.session_id: one.record for one in reversed(trashed)}


def _below(record: SessionRecord, trashed: dict[str, SessionRecord]) -> tuple[str, ...]:
    tree = [(one.session_id, one.parent_session_id) for one in trashed.values() if one.root_id == record.root_id]
    return below(record.session_id, tree)


def _days_ago(days: float) -> str:
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="microseconds").replace("+00:00", "Z")
