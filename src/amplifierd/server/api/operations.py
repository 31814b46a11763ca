"""Long work: how far it is, what came of it, and its end before the time."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import Request

from amplifierd.server.http.dependencies import Reader, Runner, TheDaemon
from amplifierd.server.http.member_gate import is_relayed
from amplifierd.server.http.models import MAX_PAGE, Answer, Page, PageLimit, PageOffset, Problem, paged, problems
from amplifierd.server.http.routers import API, api_router

router = api_router("/operations", tags=["operations"])


class Progress(Answer):
    done: int
    total: int | None = None
    message: str


class OperationInfo(Answer):
    """One piece of long work."""

    id: str
    kind: str
    target: str
    status: Literal["pending", "running", "succeeded", "failed", "cancelled"]
    progress: Progress
    result: Any = None
    error: Problem | None = None
    created_at: str
    finished_at: str | None = None


class OperationPage(Page):
    operations: list[OperationInfo]


@router.get("")
async def list_operations(
    daemon: TheDaemon, caller: Reader, request: Request, limit: PageLimit = 100, offset: PageOffset = 0
) -> OperationPage:
    """List operations of the last 24 hours, the newest first: your own, or all for an admin."""
    known = [OperationInfo(**each.to_json()) for each in daemon.operations.list(caller)]
    if daemon.elsewhere is not None and not is_relayed(request):
        found = await daemon.elsewhere.ask(f"{API}/operations?limit={MAX_PAGE}", caller, request.state.address)
        known += [OperationInfo(**each) for page in found.values() for each in page["operations"]]
        known.sort(key=lambda each: each.created_at, reverse=True)
    part, facts = paged(known, limit, offset)
    return OperationPage(operations=[*part], **facts)


@router.get("/{operation_id}", responses=problems(404))
async def get_operation(daemon: TheDaemon, caller: Reader, operation_id: str) -> OperationInfo:
    """Show the progress and the result of an operation."""
    return OperationInfo(**daemon.operations.get(operation_id, caller).to_json())


@router.delete("/{operation_id}", responses=problems(404, 409))
async def cancel_operation(daemon: TheDaemon, caller: Runner, operation_id: str) -> OperationInfo:
    """Cancel an operation; responds when it has stopped."""
    return OperationInfo(**(await daemon.operations.cancel(operation_id, caller)).to_json())
