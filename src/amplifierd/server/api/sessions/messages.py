"""What was said and what happened in a session: its messages and its stored events."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BeforeValidator, Field

from amplifier_sessions.event_page import EventPlace
from amplifierd.server.events.published_event import EventFilter
from amplifierd.server.events.rendered_watch import rendered
from amplifierd.server.http.dependencies import Reader, Runner, TheDaemon
from amplifierd.server.http.idempotent_route import IdempotentRoute
from amplifierd.server.http.models import LOADING, Answer, Body, PageLimit, PageOffset, SessionId, SessionInfo, shown
from amplifierd.server.http.routers import api_router
from amplifierd.store.protocol import Place

from .streams import Patterns

router = api_router("/sessions/{session_id}", tags=["messages"], route_class=IdempotentRoute)

Roles = Annotated[str | None, Query(description="of these roles, comma-separated")]
Level = Annotated[Literal["INFO", "WARNING", "ERROR"] | None, BeforeValidator(lambda text: text.upper()), Query()]
Rendered = Annotated[Literal["html"] | None, Query(description="`html`: messages carry their HTML as well")]
MessageId = Annotated[str | None, Query(max_length=200, description="the id of a message")]


class NewMessage(Body):
    role: Literal["user", "assistant", "system"] = "user"
    content: str
    agent: str | None = None
    token_count: Annotated[int, Field(ge=0)] | None = None


class Messages(Answer):
    """A part of a conversation; `total` counts what the query fits."""

    session_id: str
    messages: list[dict[str, Any]]
    total: int
    has_more: bool
    revision: int


class DeletedMessage(Answer):
    status: Literal["deleted", "no_messages"]
    deleted_message: dict[str, Any] | None


class Truncation(Body):
    turn: Annotated[int, Field(ge=0)]


class Compacted(Answer):
    """What the model was shown before, and is shown after; tokens are estimated."""

    tokens_before: int
    tokens_after: int
    messages_before: int
    messages_after: int


class StoredEvents(Answer):
    events: list[dict[str, Any]]
    total: int
    has_more: bool


@router.post("/messages", status_code=201)
async def append_message(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: NewMessage) -> dict[str, Any]:
    """Add a message to the conversation without running a turn."""
    await daemon.access.get(caller, session_id)
    given = body.model_dump(exclude_none=True)
    message: dict[str, Any] = await daemon.live.acts.append_message(session_id, **given)
    return message


@router.get("/messages")
async def list_messages(
    daemon: TheDaemon,
    caller: Reader,
    session_id: SessionId,
    limit: PageLimit = 100,
    before: MessageId = None,
    after: MessageId = None,
    roles: Roles = None,
    include: Annotated[Literal["tools"] | None, Query(description="`tools`: also the results of tools")] = None,
    render: Rendered = None,
) -> Messages:
    """List the latest `limit` messages, or those before or after a message."""
    record = await daemon.access.get(caller, session_id)
    place = Place(limit, before, after)
    if include == "tools" and roles is None:
        page = await daemon.home.sessions.reader.message_page(session_id, place)
    else:
        wanted = {role.strip() for role in roles.split(",")} if roles else None
        found = await daemon.home.sessions.reader.messages(session_id)
        page = place.page(found, lambda message: _fits(message, wanted))
    part = [*page.messages]
    if render == "html":
        part = [await rendered(message, daemon.renderer) for message in part]
    return Messages(
        session_id=session_id, messages=part, total=page.total, has_more=page.has_more, revision=record.revision
    )


@router.get("/transcript")
async def get_transcript(
    daemon: TheDaemon,
    caller: Reader,
    session_id: SessionId,
    limit: PageLimit = 1000,
    before: MessageId = None,
    after: MessageId = None,
    roles: Roles = None,
    render: Rendered = None,
) -> Messages:
    """List the whole conversation as stored, including tool calls and results."""
    return await list_messages(daemon, caller, session_id, limit, before, after, roles, "tools", render)


@router.delete("/messages/last")
async def delete_last_message(daemon: TheDaemon, caller: Runner, session_id: SessionId) -> DeletedMessage:
    """Remove the last message from the conversation."""
    await daemon.access.get(caller, session_id)
    deleted = await daemon.live.acts.delete_last_message(session_id)
    return DeletedMessage(status="deleted" if deleted else "no_messages", deleted_message=deleted)


@router.post("/truncate")
async def truncate(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Truncation) -> SessionInfo:
    """Drop everything after a turn; 0 drops the whole conversation."""
    await daemon.access.get(caller, session_id)
    return shown(daemon, await daemon.live.acts.truncate(session_id, turn=body.turn))


@router.post("/compact", responses=LOADING)
async def compact(daemon: TheDaemon, caller: Runner, session_id: SessionId) -> Compacted:
    """Drop older messages from what the model sees; the session keeps them all."""
    await daemon.access.get(caller, session_id)
    return Compacted(**(await daemon.live.compact(session_id)).to_json())


@router.get("/events")
async def list_events(
    daemon: TheDaemon,
    caller: Reader,
    session_id: SessionId,
    limit: PageLimit = 500,
    offset: PageOffset = 0,
    after_seq: Annotated[int, Query(ge=0)] = 0,
    level: Level = None,
    event_type: Annotated[str | None, Query(max_length=200, description="how the name begins")] = None,
    names: Patterns = None,
    include_children: bool = False,
    shorten: Annotated[int | None, Query(ge=20, description="cut texts in the data after so many characters")] = None,
) -> StoredEvents:
    """List the stored events of a session, in order; pieces of blocks are not stored."""
    await daemon.access.get(caller, session_id)
    sessions, chosen = daemon.home.sessions, EventFilter.read(names, None)

    def fits(name: str) -> bool:
        return name.startswith(event_type or "") and chosen.passes(name)

    wants = None if chosen.is_open and not event_type else fits
    place = EventPlace(limit, after_seq=after_seq, offset=offset, level=level, wants=wants)
    page = await sessions.reader.event_page(session_id, place, include_children=include_children)
    part = [*page.events]
    if shorten is not None:
        part = [{**event, "data": _shortened(event.get("data"), shorten)} for event in part]
    return StoredEvents(events=part, total=page.total, has_more=page.has_more)


def _shortened(value: Any, most: int) -> Any:
    """Return plain data whose texts are cut, so that it can be looked through without being read."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}…"
    if isinstance(value, dict):
        return {key: _shortened(one, most) for key, one in value.items()}
    return [_shortened(one, most) for one in value] if isinstance(value, list) else value


def _fits(message: dict[str, Any], roles: set[str] | None) -> bool:
    return message.get("role") in roles if roles is not None else message.get("role") != "tool"
