"""Files around sessions: what turns changed and taking it back, running a record again, exports and imports."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Query
from fastapi.responses import FileResponse
from pydantic import Base64Bytes, Field
from starlette.background import BackgroundTask

from amplifierd.server.bundle_catalogue import check_address
from amplifierd.server.http.dependencies import Admin, Reader, Runner, TheDaemon
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import LOADING, Answer, Body, SessionId, SessionInfo, shown
from amplifierd.server.http.routers import api_router
from amplifierd.server.profile_edits import checked_profile_id
from amplifierd.sessions.recordings.session_archive import ArchiveLimits

router = api_router("/sessions", tags=["sessions"], route_class=IdempotentRoute)

_ARCHIVE = "application/octet-stream"
_ONE_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {_ARCHIVE: {"schema": {"type": "string", "format": "binary"}}}}
}
_LIMITS = ArchiveLimits(total_bytes=128 << 20)  # of the daemon's memory; the command takes larger files
Turn = Annotated[int, Query(ge=1, le=2**31)]


class TurnChanges(Answer):
    """What a turn changed in the working directory."""

    turn: int
    added: list[str]
    modified: list[str]
    deleted: list[str]
    diff: str
    is_cut: bool
    complete: bool
    reason: str


class Undo(Body):
    turn: Annotated[int, Field(ge=1)]
    what: Literal["files", "conversation", "both"] = "both"
    force: bool = Field(default=False, description="also where someone else has changed the files since")


class Undone(Answer):
    """What was brought back. Unless it is `done`, nothing was touched, because of the files in `foreign`."""

    done: bool
    restored: list[str] = Field(default_factory=list)
    foreign: list[str] = Field(default_factory=list)
    not_empty: list[str] = Field(default_factory=list)


class Replay(Body):
    """With what a record is run again; by default with its own plan."""

    profile_name: str | None = None
    bundle_uri: str | None = None
    mount_plan: dict[str, Any] | None = None


class Import(Body):
    data: Base64Bytes = Field(description="an exported file, in base64")


class Imported(Answer):
    session: SessionInfo
    ids: dict[str, str]
    verified: bool


@router.get("/{session_id}/changes")
async def get_changes(daemon: TheDaemon, caller: Reader, session_id: SessionId, turn: Turn) -> TurnChanges:
    """Show what a turn changed in the working directory, with a diff."""
    await daemon.access.get(caller, session_id)
    changes = await daemon.home.sessions.changes(session_id, turn)
    return TurnChanges(turn=turn, **asdict(changes))


@router.post("/{session_id}/undo")
async def undo(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Undo) -> Undone:
    """Undo a turn: in the files, in the conversation, or both."""
    await daemon.access.get(caller, session_id)
    result = await daemon.live.acts.undo(session_id, turn=body.turn, what=body.what, force=body.force)
    if result is None:
        return Undone(done=True)
    return Undone(
        done=result.done, restored=[*result.restored], foreign=[*result.foreign], not_empty=[*result.not_empty]
    )


@router.post("/{session_id}/replay", responses=LOADING)
async def replay(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Replay) -> dict[str, Any]:
    """Replay a recorded session without models and tools, and say where it first differs."""
    await daemon.access.get(caller, session_id)
    if body.profile_name is not None:
        checked_profile_id(body.profile_name)
    check_address(daemon.home.bundles, body.bundle_uri, caller, daemon.home.settings.security)
    return await daemon.live.replay(session_id, profile=body.profile_name, bundle=body.bundle_uri, plan=body.mount_plan)


@router.get("/{session_id}/export", response_class=FileResponse, responses=_ONE_FILE)
async def export(daemon: TheDaemon, caller: Reader, session_id: SessionId, mask_messages: bool = False) -> FileResponse:
    """Download a session and its children as one signed file."""
    await daemon.access.get(caller, session_id)
    directory = tempfile.TemporaryDirectory(prefix="amplifierd-export-")
    path = Path(directory.name) / f"{session_id}.zip"
    try:
        await daemon.home.sessions.export(session_id, path, mask_messages=mask_messages)
    except BaseException:
        directory.cleanup()
        raise
    return FileResponse(path, media_type=_ARCHIVE, filename=path.name, background=BackgroundTask(directory.cleanup))


@router.post("/import", status_code=201)
async def import_(daemon: TheDaemon, caller: Admin, body: Import) -> Imported:
    """Store the sessions of an exported file; only those of a signer that this home trusts are `verified`."""
    with tempfile.TemporaryDirectory(prefix="amplifierd-import-") as directory:
        path = Path(directory) / "import.zip"
        await asyncio.to_thread(path.write_bytes, body.data)
        imported = await daemon.home.sessions.import_(path, limits=_LIMITS)
    return Imported(session=shown(daemon, imported.record), ids=dict(imported.ids), verified=imported.verified)
