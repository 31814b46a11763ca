"""Inside a session: its plan, what is mounted in it, and what was sent to models, with where each part came from."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Path
from pydantic import Field

from amplifierd.plans.conversion import Form
from amplifierd.server.auth.callers import Caller
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Reader, Runner, TheDaemon
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import LOADING, Answer, Body, Page, PageLimit, PageOffset, SessionId, paged
from amplifierd.server.http.routers import api_router
from amplifierd.workers.live_sessions import Part

router = api_router("/sessions/{session_id}", tags=["sessions"], route_class=IdempotentRoute)


class ModulePage(Page):
    modules: list[dict[str, Any]]


class ToolPage(Page):
    tools: list[dict[str, Any]]


class HookPage(Page):
    hooks: list[dict[str, Any]]


class CapabilityPage(Page):
    capabilities: list[dict[str, Any]]


class AgentPage(Page):
    agents: list[dict[str, Any]]


class RoleModel(Answer):
    """The model that serves a role, and the candidates before it, with the reason why each does not."""

    role: str
    description: str
    provider: str | None
    model: str | None
    is_served: bool
    position: int | None = Field(description="which candidate of the matrix it is, the first is 1")
    passed: list[dict[str, Any]]


class AgentModel(Answer):
    agent: str
    model_role: list[str]
    provider: str | None
    model: str | None
    reason: str = Field(description="who decided: agent, agent role …, or parent")


class RoutingReport(Answer):
    """What a session's models really are."""

    matrix: str | None
    source: str | None
    default: dict[str, str | None]
    roles: list[RoleModel]
    agents: list[AgentModel]


class ModeChoice(Body):
    name: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(description="null leaves the mode")


class ListedMode(Answer):
    name: str
    description: str
    source: str
    shortcut: str | None
    advertised: bool


class ModePolicy(Answer):
    """What the mode that is on allows; `unknown_tools` are only in its lists, each with the nearest name."""

    description: str
    default_action: str
    safe_tools: list[str]
    warn_tools: list[str]
    confirm_tools: list[str]
    block_tools: list[str]
    permissions: str | None
    unknown_tools: dict[str, str | None]


class Modes(Answer):
    active_mode: str | None
    modes: list[ListedMode]
    policy: ModePolicy | None = None


class SkillDiagnostic(Answer):
    """What is wrong with a skill or a source of skills, where, and by which rule."""

    path: str
    field: str
    rule: str
    severity: str
    message: str


class ListedSkill(Answer):
    name: str
    description: str
    source: str
    is_fork: bool = Field(description="whether it is carried out in a session of its own")
    shortcut: str | None
    trusted: bool = Field(description="whether its commands may run and its hooks are announced")
    diagnostics: list[SkillDiagnostic] = Field(description="what is wrong with its file")


class Skills(Answer):
    skills: list[ListedSkill]
    diagnostics: list[SkillDiagnostic] = Field(description="also of skills that are hidden or skipped, and of sources")


class RequestSummary(Answer):
    request_id: str
    number: int
    turn: int
    provider: str
    model: str | None
    tokens: int
    parts: int
    message_id: str | None = Field(description="the message of the conversation that answered it")
    response: dict[str, Any] | None


class RequestPage(Page):
    requests: list[RequestSummary]


@router.get("/mount-plan")
async def get_plan(
    daemon: TheDaemon, caller: Reader, session_id: SessionId, form: Form | None = None
) -> dict[str, Any]:
    """Show the plan that a session runs with, as it is stored or in another form, without keys."""
    await daemon.access.get(caller, session_id)
    plan = await daemon.home.sessions.reader.plan(session_id)
    return plan if form is None else await asyncio.to_thread(daemon.home.plans.convert, plan, form)


@router.get("/config")
async def get_config(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> dict[str, Any]:
    """Show the stored plan of a session."""
    return await get_plan(daemon, caller, session_id)


@router.get("/modules", responses=LOADING)
async def list_modules(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, limit: PageLimit = 100, offset: PageOffset = 0
) -> ModulePage:
    """List the modules of a session with where they are mounted and whether they loaded; loads it if necessary."""
    return ModulePage(**await _inspected(daemon, caller, session_id, "modules", limit, offset))


@router.get("/tools", responses=LOADING)
async def list_tools(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, limit: PageLimit = 100, offset: PageOffset = 0
) -> ToolPage:
    """List the tools that a session offers to the model; loads it if necessary."""
    return ToolPage(**await _inspected(daemon, caller, session_id, "tools", limit, offset))


@router.get("/hooks", responses=LOADING)
async def list_hooks(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, limit: PageLimit = 100, offset: PageOffset = 0
) -> HookPage:
    """List which hooks listen to which events of a session; loads it if necessary."""
    return HookPage(**await _inspected(daemon, caller, session_id, "hooks", limit, offset))


@router.get("/capabilities", responses=LOADING)
async def list_capabilities(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, limit: PageLimit = 100, offset: PageOffset = 0
) -> CapabilityPage:
    """List the capabilities of a session; loads it if necessary."""
    return CapabilityPage(**await _inspected(daemon, caller, session_id, "capabilities", limit, offset))


@router.get("/agents", responses=LOADING)
async def list_agents(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, limit: PageLimit = 100, offset: PageOffset = 0
) -> AgentPage:
    """List the agents a session can delegate to; loads it if necessary."""
    return AgentPage(**await _inspected(daemon, caller, session_id, "agents", limit, offset))


@router.get("/routing", responses=LOADING)
async def get_routing(daemon: TheDaemon, caller: Runner, session_id: SessionId) -> RoutingReport:
    """Show which model serves which role and agent of a session, and why; loads it if necessary."""
    await daemon.access.get(caller, session_id)
    (report,) = await daemon.live.inspect(session_id, "routing")
    return RoutingReport(**report)


@router.get("/mode", responses=LOADING)
async def get_mode(daemon: TheDaemon, caller: Runner, session_id: SessionId) -> Modes:
    """Show the mode of a session, what it allows, and the modes that there are; loads the session if necessary."""
    await daemon.access.get(caller, session_id)
    (found,) = await daemon.live.inspect(session_id, "mode")
    return Modes(**found)


@router.post("/mode", responses=LOADING)
async def choose_mode(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: ModeChoice) -> Modes:
    """Enter a mode, or leave the one that is on; loads the session if necessary."""
    await daemon.access.get(caller, session_id)
    return Modes(**await daemon.live.choose_mode(session_id, body.name))


@router.get("/skills", responses=LOADING)
async def list_skills(daemon: TheDaemon, caller: Runner, session_id: SessionId) -> Skills:
    """List the skills that a session can load, with what is wrong with skills; loads the session if necessary."""
    await daemon.access.get(caller, session_id)
    (found,) = await daemon.live.inspect(session_id, "skills")
    return Skills(**found)


@router.get("/requests")
async def list_requests(
    daemon: TheDaemon, caller: Reader, session_id: SessionId, limit: PageLimit = 100, offset: PageOffset = 0
) -> RequestPage:
    """List what was sent to models, request by request."""
    await daemon.access.get(caller, session_id)
    found, facts = paged(await daemon.home.sessions.reader.requests(session_id), limit, offset)
    requests = [
        RequestSummary(
            request_id=request.request_id,
            number=request.number,
            turn=request.turn,
            provider=request.provider,
            model=request.model,
            tokens=request.tokens,
            parts=len(request.parts),
            message_id=request.message_id,
            response=dict(request.response.facts) if request.response else None,
        )
        for request in found
    ]
    return RequestPage(requests=requests, **facts)


@router.get("/requests/{request_id}")
async def get_request(
    daemon: TheDaemon, caller: Reader, session_id: SessionId, request_id: Annotated[str, Path(max_length=200)]
) -> dict[str, Any]:
    """Show one request to a model: every part with its text and where it came from, the tools, the response."""
    await daemon.access.get(caller, session_id)
    request = await daemon.home.sessions.reader.request(session_id, request_id)
    return request.to_json()


async def _inspected(
    daemon: Daemon, caller: Caller, session_id: str, part: Part, limit: int, offset: int
) -> dict[str, Any]:
    await daemon.access.get(caller, session_id)
    found, facts = paged(await daemon.live.inspect(session_id, part), limit, offset)
    return {part: found, **facts}
