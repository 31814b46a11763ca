"""Deleted sessions: listed, brought back, and removed for good."""

from __future__ import annotations

from datetime import datetime, timedelta

from amplifierd.exceptions import SessionNotFoundError
from amplifierd.server.auth.callers import Caller
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Reader, Runner, TheDaemon
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import Page, PageLimit, PageOffset, SessionId, SessionInfo, paged, problems, shown
from amplifierd.server.http.routers import api_router
from amplifierd.store.protocol import TrashedSession
from amplifierd.store.record import SessionRecord, checked_session_id

router = api_router("/sessions/trash", tags=["sessions"], route_class=IdempotentRoute)


class DeletedSession(SessionRecord):
    """A session in the trash; it can be restored until `expires_at`."""

    deleted_at: str
    expires_at: str


class DeletedPage(Page):
    sessions: list[DeletedSession]


@router.get("")
async def list_deleted(
    daemon: TheDaemon, caller: Reader, limit: PageLimit = 100, offset: PageOffset = 0
) -> DeletedPage:
    """List the sessions that can be restored, your own or all for an admin; the last deleted first."""
    found, facts = paged(await _seen_by(daemon, caller), limit, offset)
    kept_for = timedelta(days=daemon.home.settings.sessions.trash_days)
    return DeletedPage(sessions=[_deleted(one, kept_for) for one in found], **facts)


@router.post("/{session_id}/restore", responses=problems(404, 409))
async def restore_session(daemon: TheDaemon, caller: Runner, session_id: SessionId) -> SessionInfo:
    """Restore a deleted session, with everything below it."""
    record = await _find(daemon, caller, session_id)
    daemon.access.remember(record.root_id, record.owner)
    return shown(daemon, await daemon.home.sessions.restore(session_id))


@router.delete("/{session_id}", status_code=204, responses=problems(404))
async def purge_session(daemon: TheDaemon, caller: Runner, session_id: SessionId) -> None:
    """Permanently remove a deleted session, with everything below it."""
    await _find(daemon, caller, session_id)
    await daemon.home.sessions.purge(session_id)


async def _seen_by(daemon: Daemon, caller: Caller) -> list[TrashedSession]:
    found = await daemon.home.sessions.reader.deleted()
    return [one for one in found if caller.sees(one.record.owner)]


async def _find(daemon: Daemon, caller: Caller, session_id: str) -> SessionRecord:
    checked_session_id(session_id)
    for one in await _seen_by(daemon, caller):
        if one.record.session_id == session_id:
            return one.record
    raise SessionNotFoundError(
        f"there is no deleted session {session_id!r}", hint="GET /api/v1/sessions/trash lists yours"
    )


def _deleted(trashed: TrashedSession, kept_for: timedelta) -> DeletedSession:
    expires = datetime.fromisoformat(trashed.deleted_at) + kept_for
    return DeletedSession(
        **trashed.record.model_dump(),
        deleted_at=trashed.deleted_at,
        expires_at=expires.isoformat(timespec="microseconds").replace("+00:00", "Z"),
    )
