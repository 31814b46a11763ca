"""Removing sessions: into the trash, from which they can be brought back for some time, or for good."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from amplifierd.exceptions import (
    ExecutionInProgressError,
    SessionHeldError,
    SessionNotFoundError,
    SessionStateError,
)
from amplifierd.session_store.file_listing import below
from amplifierd.session_store.protocol import Hold, SessionQuery, TrashedSession
from amplifierd.session_store.record import SessionRecord, checked_session_id

from .announcements import RESTORED, described
from .open_sessions import ENDED
from .session_changes import SessionChanges
from .synchronous_reads import now_or_in_thread

_KEPT_DAYS = 30.0


class SessionRemoval(SessionChanges):
    """Removes sessions and brings them back, each with everything below it."""

    async def delete(self, session_id: str, *, force: bool = False, forever: bool = False) -> None:
        """Move a session and everything below it into the trash; with `forever` nothing is left of them.

        Where the setting `sessions.trash_days` is 0 there is no trash.

        Raises:
            SessionStateError: another application keeps it.
            ExecutionInProgressError: a turn is running, and `force` is not set.
            SessionHeldError: another process holds it.
        """
        await self._read_own(session_id)
        forever = forever or not self.runtime.settings.sessions.trash_days
        for member in (session_id, *await self._store.descendants(session_id)):
            runner = self._find_runner(member)
            if runner is not None and runner.status.is_busy and not force:
                raise ExecutionInProgressError(f"session {member} is executing a turn", hint="cancel it, or use force")
        await self._unload(session_id)  # first, so that it delegates nothing any more
        whole_tree = (session_id, *await self._store.descendants(session_id))
        for member in whole_tree[1:]:
            await self._unload(member)
        holds: list[Hold] = []
        top = await self._read(session_id)
        root_id = top.root_id
        if forever:
            await self._purge_below(top)
        async with self._trees.held(root_id) as root_hold:
            try:
                for member in whole_tree:
                    own = member == root_id
                    holds.append(root_hold if own else await self._store.acquire(member, self.runtime.holder))
                while holds:
                    record = await self._read(holds[-1].session_id)
                    await self.runtime.announcements.delete(holds[-1], record, forever=forever)
                    holds.pop()
            finally:
                for hold in holds:
                    if hold is not root_hold:
                        await self._store.release(hold)

    def deleted(self) -> tuple[TrashedSession, ...]:
        """Return the sessions that can be restored, the last deleted first."""
        return now_or_in_thread(self._store.trash)

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
            await self._tell(hold, record, (RESTORED, described(record)))

        await self._under_hold(session_id, tell)

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
        kept_for = self.runtime.settings.sessions.trash_days if older_than_days is None else older_than_days
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
            kept_for = self.runtime.settings.sessions.retention_days
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
