"""Sessions made of others, and how they hang together: forks, clones, turns, ancestors, children; other profiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import Field

from amplifier_sessions.index_query import message_text
from amplifierd.exceptions import InvalidTurnError, RequestRefusedError, SessionNotFoundError
from amplifierd.server.http.dependencies import Reader, Runner, TheDaemon
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import (
    LOADING,
    Answer,
    Body,
    PageLimit,
    PageOffset,
    SessionId,
    SessionInfo,
    SessionPage,
    all_shown,
    page_facts,
    shown,
)
from amplifierd.server.http.routers import api_router
from amplifierd.server.profile_edits import checked_profile_id
from amplifierd.sessions.conversation.transcript import last_turn
from amplifierd.sessions.layers.uncounted_usage import TURN_DONE
from amplifierd.store.protocol import Message, SessionQuery, StoredEvent
from amplifierd.store.record import SessionRecord

router = api_router("/sessions/{session_id}", tags=["sessions"], route_class=IdempotentRoute)

_PREVIEW = 200
Name = Annotated[str, Field(max_length=200)]
Turn = Annotated[int, Field(ge=1)]


class ProfileChange(Body):
    profile_name: str
    cancel: bool = Field(default=False, description="cancel a running turn instead of waiting for it")


class AgentChange(Body):
    """What is to change about the agent; what is left out stays."""

    provider: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="a provider of the session's plan, with or without `provider-`"
    )
    model: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    effort: Annotated[str, Field(min_length=1, max_length=50)] | None = None
    max_iterations: Annotated[int, Field(ge=1, le=2**31)] | None = None
    cancel: bool = Field(default=False, description="cancel a running turn instead of waiting for it")


class Clone(Body):
    name: Name | None = None


class Fork(Body):
    turn: Turn | None = None
    name: Name | None = None
    handle_orphaned_tools: Literal["complete", "remove", "error"] = "complete"


class Forked(Answer):
    session_id: str
    parent_session_id: str
    forked_from_turn: int
    message_count: int


class Preview(Answer):
    turn: int
    max_turns: int
    message_count: int
    messages: list[dict[str, Any]]


class TurnInfo(Answer):
    """A turn; `status`, `usage` and `error` are null while it runs."""

    turn: int
    started_at: str | None
    ended_at: str | None
    status: str | None
    usage: dict[str, Any] | None
    error: dict[str, Any] | None
    user_preview: str
    assistant_preview: str
    message_ids: list[str]


class Turns(Answer):
    turns: list[TurnInfo]
    total: int


class Lineage(Answer):
    ancestors: list[SessionInfo]
    total: int


class Tree(Answer):
    """A session and those below it; `usage` is what it used by itself."""

    session_id: str
    agent: str | None
    name: str | None
    status: str
    created_at: str
    turn_count: int
    usage: dict[str, Any] | None
    children: list[Tree]


@router.post("/change-profile", responses=LOADING)
async def change_profile(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: ProfileChange) -> SessionInfo:
    """Switch to another profile, or to the newest build of the same, after the running turn."""
    await daemon.access.get(caller, session_id)
    profile_id = checked_profile_id(body.profile_name)
    record = await daemon.live.acts.change_profile(session_id, profile=str(profile_id), cancel=body.cancel)
    return shown(daemon, record)


@router.post("/change-agent", responses=LOADING)
async def change_agent(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: AgentChange) -> SessionInfo:
    """Switch to another provider, model, effort or number of iterations, after the running turn."""
    await daemon.access.get(caller, session_id)
    wanted = body.model_dump(exclude={"cancel"}, exclude_none=True)
    if not wanted:
        raise RequestRefusedError(
            "there is nothing to change",
            code="invalid-request",
            hint="name a provider, a model, an effort or max_iterations",
        )
    record = await daemon.live.acts.change_agent(session_id, **wanted, cancel=body.cancel)
    return shown(daemon, record)


@router.post("/clone", status_code=201)
async def clone_session(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Clone | None = None
) -> SessionInfo:
    """Copy a session, with its events and its children."""
    await daemon.access.get(caller, session_id)
    return shown(daemon, await daemon.home.sessions.clone(session_id, body.name if body else None))


@router.post("/fork", status_code=201, responses=LOADING)
async def fork_session(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Fork | None = None) -> Forked:
    """Create a session that continues from a turn of another, by default its last."""
    body = body or Fork()
    await daemon.access.get(caller, session_id)
    forked = await daemon.home.sessions.fork(
        session_id, body.turn, name=body.name, handle_orphaned_tools=body.handle_orphaned_tools
    )
    return Forked.model_validate(forked)


@router.get("/fork/preview")
async def preview_fork(
    daemon: TheDaemon, caller: Reader, session_id: SessionId, turn: Annotated[int | None, Query(ge=1)] = None
) -> Preview:
    """Show what a fork at a turn would start with."""
    await daemon.access.get(caller, session_id)
    messages = [*await daemon.home.sessions.reader.messages(session_id)]
    latest = last_turn(messages)
    at = latest if turn is None else turn
    if not 1 <= at <= latest:
        raise InvalidTurnError(f"turn {at} is out of range: session {session_id} has {latest}")
    kept = [message for message in messages if int(message.get("turn") or 0) <= at]
    return Preview(turn=at, max_turns=latest, message_count=len(kept), messages=kept)


@router.get("/turns")
async def list_turns(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> Turns:
    """List the turns of a session with their prompts, results and usage."""
    await daemon.access.get(caller, session_id)
    messages = await daemon.home.sessions.reader.messages(session_id)
    events = await daemon.home.sessions.reader.events(session_id)
    ends = {event["data"].get("turn"): event for event in events if event.get("event") == TURN_DONE}
    said: dict[int, list[Message]] = {}
    for message in messages:
        if number := int(message.get("turn") or 0):
            said.setdefault(number, []).append(message)
    turns = [_turn(number, said[number], ends.get(number)) for number in sorted(said)]
    return Turns(turns=turns, total=len(turns))


@router.get("/lineage")
async def get_lineage(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> Lineage:
    """List the ancestors of a session, the root first."""
    record = await daemon.access.get(caller, session_id)
    ancestors: list[SessionRecord] = []
    while (parent_id := record.parent_session_id) is not None and len(ancestors) < 1000:
        try:
            record = await daemon.access.get(caller, parent_id)
        except SessionNotFoundError:
            break
        ancestors.insert(0, record)
    return Lineage(ancestors=await all_shown(daemon, ancestors), total=len(ancestors))


@router.get("/forks")
async def list_forks(
    daemon: TheDaemon, caller: Reader, session_id: SessionId, limit: PageLimit = 100, offset: PageOffset = 0
) -> SessionPage:
    """List the children of a session: forks, and the sessions of its sub-agents."""
    await daemon.access.get(caller, session_id)
    query = SessionQuery(parent_session_id=session_id, sort="created_at", limit=limit, offset=offset)
    page = await daemon.home.sessions.reader.list(query)
    return SessionPage(
        sessions=await all_shown(daemon, page.sessions), **page_facts(page.total, len(page.sessions), limit, offset)
    )


@router.get("/tree")
async def get_tree(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> Tree:
    """Show a session with everything below it."""
    record = await daemon.access.get(caller, session_id)
    below = await daemon.home.sessions.reader.children(session_id)
    return _tree(record, below)


def _tree(record: SessionRecord, below: Sequence[SessionRecord]) -> Tree:
    nodes = {each.session_id: _node(each) for each in (record, *below)}
    for each in below:
        if (parent := nodes.get(each.parent_session_id or "")) is not None:
            parent.children.append(nodes[each.session_id])
    return nodes[record.session_id]


def _node(record: SessionRecord) -> Tree:
    return Tree(
        session_id=record.session_id,
        agent=record.agent_name,
        name=record.name,
        status=record.status,
        created_at=record.created_at,
        turn_count=record.turn_count,
        usage=record.usage,
        children=[],
    )


def _turn(number: int, messages: Sequence[Message], end: StoredEvent | None) -> TurnInfo:
    done: dict[str, Any] = end["data"] if end is not None else {}
    return TurnInfo(
        turn=number,
        started_at=messages[0].get("timestamp"),
        ended_at=end.get("ts") if end is not None else None,
        status=done.get("status"),
        usage=done.get("usage"),
        error=done.get("error"),
        user_preview=_preview(messages, "user", first=True),
        assistant_preview=_preview(messages, "assistant", first=False),
        message_ids=[str(message.get("id")) for message in messages],
    )


def _preview(messages: Sequence[dict[str, Any]], role: str, *, first: bool) -> str:
    said = [message_text(message) for message in messages if message.get("role") == role]
    texts = [text for text in said if text]
    return (texts[0] if first else texts[-1])[:_PREVIEW] if texts else ""
