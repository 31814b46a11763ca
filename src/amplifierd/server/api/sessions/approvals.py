"""Questions that sessions ask: listed, for one session or all, and answered once."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Path
from pydantic import Field, model_validator

from amplifier_system.permission_levels import PermissionLevel
from amplifierd.server.http.dependencies import Reader, Runner, TheDaemon
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import LOADING, Answer, Body, SessionId, problems
from amplifierd.server.http.routers import api_router
from amplifierd.sessions.questions.approval import Remember
from amplifierd.sessions.questions.lasting_approvals import Reach

router = api_router(tags=["approvals"], route_class=IdempotentRoute)

RequestId = Annotated[str, Path(max_length=200)]


class Approvals(Answer):
    pending: list[dict[str, Any]]
    total: int


class Decision(Body):
    """`decision` is `allow`, `deny` or one of the options; or `approved` says yes or no.

    `remember` lets the answer stand for what `always_covers` names: in this `session` (as `true` does), in this
    `project`, or `everywhere`. The last two are written to the home's `config/approvals.yaml` and need the scope
    `admin`.
    """

    decision: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    reason: str | None = None
    remember: Remember = False
    approved: bool | None = None
    message: str | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Decision:
        if (self.decision is None) == (self.approved is None):
            raise ValueError("either decision or approved is needed")
        return self

    @property
    def answer(self) -> str:
        return self.decision or ("allow" if self.approved else "deny")


class Resolved(Answer):
    request_id: str
    decision: str
    status: str
    resolved_at: str | None


@router.get("/approvals")
async def list_all_approvals(daemon: TheDaemon, caller: Reader) -> Approvals:
    """List the questions that wait for an answer in all sessions the caller may see."""
    elsewhere = (await daemon.elsewhere.states.all()).values() if daemon.elsewhere is not None else ()
    states = (*elsewhere, *daemon.live.states())
    asking = {state.session_id: state.pending_approvals for state in states if state.pending_approvals}
    seen = [record for record in await daemon.access.existing(asking) if caller.sees(record.owner)]
    pending = [dict(approval) for record in seen for approval in asking[record.session_id]]
    return Approvals(pending=pending, total=len(pending))


class RememberedApproval(Answer):
    """An answer that stands for later calls of `tool`: those that `covers` names, or exactly that one."""

    approval_id: str
    reach: Reach
    tool: str
    covers: str
    is_exact: bool
    option: str
    at: str | None = None


class RememberedApprovals(Answer):
    permission_level: PermissionLevel | None
    remembered: list[RememberedApproval]


@router.get("/sessions/{session_id}/permissions")
async def list_permissions(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> RememberedApprovals:
    """Show the permission level of a session, and what was answered with "always" as far as it counts there."""
    record = await daemon.access.get(caller, session_id)
    found = await daemon.home.sessions.remembered_approvals(session_id)
    remembered = [RememberedApproval.model_validate(one.to_json()) for one in found]
    return RememberedApprovals(permission_level=record.permission_level, remembered=remembered)


@router.delete("/sessions/{session_id}/permissions/{approval_id}", status_code=204)
async def revoke_permission(daemon: TheDaemon, caller: Runner, session_id: SessionId, approval_id: RequestId) -> None:
    """Ask again about what an answer stood for; one that outlives the session needs the scope `admin`."""
    await daemon.access.get(caller, session_id)
    known = {one.approval_id: one for one in await daemon.home.sessions.remembered_approvals(session_id)}
    if approval_id in known and known[approval_id].reach != "session":
        caller.check("admin")
    await daemon.live.acts.revoke_approval(session_id, approval_id=approval_id)


@router.get("/sessions/{session_id}/approvals")
async def list_approvals(daemon: TheDaemon, caller: Reader, session_id: SessionId, all: bool = False) -> Approvals:
    """List the open questions of a session and its sub-agents; `all` adds answered ones."""
    await daemon.access.get(caller, session_id)
    pending = await daemon.live.approvals(session_id, finished=all)
    return Approvals(pending=pending, total=len(pending))


@router.post("/sessions/{session_id}/approvals/{request_id}", responses={**LOADING, **problems(410)})
async def answer_approval(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, request_id: RequestId, body: Decision
) -> Resolved:
    """Answer a question; the first answer counts."""
    await daemon.access.get(caller, session_id)
    if body.remember in ("project", "everywhere"):
        caller.check("admin")
    answered = await daemon.live.resolve_approval(
        session_id,
        request_id,
        body.answer,
        reason=body.reason or body.message,
        remember=body.remember,
        by=caller.name,
    )
    return Resolved(
        request_id=request_id,
        decision=str(answered.get("option") or answered.get("decision") or body.answer),
        status="resolved",
        resolved_at=answered.get("resolved_at"),
    )
