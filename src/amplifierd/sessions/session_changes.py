"""What is said about a session, and changing it: loaded or not, under the hold of its tree."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from amplifier_system.tasks import run_to_end
from amplifierd.exceptions import SessionStateError
from amplifierd.limits import Limits
from amplifierd.session_store.protocol import Hold
from amplifierd.session_store.record import SessionRecord, SessionState, checked_session_id, now, state_conflict

from .announcements import changes_told
from .between_turns import move
from .open_sessions import ENDED, OpenSessions, absolute_directory

T = TypeVar("T")

_CHANGEABLE = frozenset({"name", "tags", "metadata", "working_dir", "working_dir_scope", "limits", "on_takeover"})


class SessionChanges(OpenSessions):
    """Changes the records of sessions."""

    async def update(
        self, session_id: str, *, annotations: Mapping[str, Any] | None = None, **changes: Any
    ) -> SessionRecord:
        """Change `name`, `tags`, `metadata`, `working_dir`, `limits` or `on_takeover`; an empty name clears it.

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
            changes |= self.runtime.machine.place_of(changes["working_dir"], changes.get("working_dir_scope"))

        def changed(record: SessionRecord) -> Mapping[str, Any]:
            found = dict(changes)
            if "working_dir_scope" in changes and "working_dir" not in changes:
                machine = self.runtime.machine.with_directory_of(record)
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
            await self._tell(hold, record, *changes_told(record, [*changes]))
            return record

        async with self._alone(checked_session_id(session_id)):
            runner = self._find_runner(session_id)
            if runner is None:
                return await self._held(session_id, change)
            changes = dict(find(runner.record))
            if directory := changes.pop("working_dir", None):
                await move(runner, Path(directory))
                runner.checkpoints = await self._checkpoints_of(runner)
            return await runner.change(**changes) if changes else runner.record

    async def mark_stale(self, session_id: str, newer_build: str) -> SessionRecord:
        """Take note that there is a newer build of a session's profile; the session goes on with its own."""
        told = ("session:stale", {"build_id": newer_build})

        async def mark(hold: Hold) -> SessionRecord:
            record = await self._store.update(hold, stale=True)
            await self._tell(hold, record, *changes_told(record, ["stale"]), told)
            return record

        async with self._alone(checked_session_id(session_id)):
            runner = self._find_runner(session_id)
            if runner is None:
                return await self._held(session_id, mark)
            await runner.change(stale=True)
            await runner.journal.write(*told)
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
        record = await self._read_own(session_id)
        if status not in ENDED or record.status != "active":
            raise state_conflict(session_id, record.status, f"become {status}")
        await self._unload(session_id)  # first, so that it delegates nothing any more
        for below in reversed(await self._store.descendants(session_id)):
            if (await self._store.read(below)).status == "active":
                await self.end(below, status)
        ended = {"status": status, "ended_at": now(), **details}
        return await self._change(session_id, lambda record: ended)

    async def _under_hold(self, session_id: str, work: Callable[[Hold], Awaitable[T]]) -> T:
        async with self._alone(checked_session_id(session_id)):
            return await self._held(session_id, work)

    async def _held(self, session_id: str, work: Callable[[Hold], Awaitable[T]]) -> T:
        root_id = (await self._read_own(session_id)).root_id
        async with self._trees.held(root_id) as root_hold:
            if session_id == root_id:
                return await work(root_hold)
            hold = await self._store.acquire(session_id, self.runtime.holder)
            try:
                return await work(hold)
            finally:
                await run_to_end(self._store.release(hold))

    async def _tell(self, hold: Hold, record: SessionRecord, *entries: tuple[str, Mapping[str, Any]]) -> None:
        """Tell what happened to a session that is not loaded; others of its tree may be."""
        tree = self._trees.find(record.root_id)
        await self.runtime.announcements.tell(hold, record, *entries, tree=tree.events if tree is not None else None)
