"""Turns: submitted, watched, steered, queued and cancelled. A turn belongs to the daemon, not to a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import Path, Request, Response
from fastapi.responses import JSONResponse
from pydantic import AliasChoices, Field

from amplifier_sessions.event_page import event_batches
from amplifierd.exceptions import NothingToSteerError
from amplifierd.server.auth.callers import Caller
from amplifierd.server.daemon import Daemon
from amplifierd.server.events.published_event import EventFilter
from amplifierd.server.events.session_streams import latest_sequence, session_watch
from amplifierd.server.http.dependencies import Reader, Runner, TheDaemon
from amplifierd.server.http.event_stream import MEDIA_TYPE, turn_stream
from amplifierd.server.http.idempotent_route import IdempotentRoute, SubmittingRoute, note_repeated, turn_key
from amplifierd.server.http.models import LOADING, Answer, Body, SessionId, problems
from amplifierd.server.http.problem_answers import problem_answer
from amplifierd.server.http.routers import api_router
from amplifierd.store.record import SessionRecord, state_conflict
from amplifierd.workers.live_sessions import SubmittedTurn, TurnRequest

router = api_router("/sessions/{session_id}", tags=["turns"], route_class=IdempotentRoute)
submissions = api_router("/sessions/{session_id}", tags=["turns"], route_class=SubmittingRoute)


class Image(Body):
    """An image as a content block; `source` says where its data is, as providers take it."""

    type: Literal["image"]
    source: Annotated[dict[str, Any], Field(min_length=1)]


class Execution(Body):
    """A prompt. With `queue` it waits for a running turn; with `auto_resume` an ended session goes on.

    Of turns that wait the one with the highest `priority` is next, and of these the first one. A turn that has not
    begun after `deadline_seconds` never does and ends as failed, with the code `execution-timeout`.
    """

    prompt: Annotated[str, Field(validation_alias=AliasChoices("prompt", "content"))]
    metadata: dict[str, Any] = Field(default_factory=dict)
    images: list[Image] = Field(default_factory=list)
    queue: bool = False
    auto_resume: bool = False
    timeout_seconds: Annotated[float, Field(gt=0)] | None = None
    deadline_seconds: Annotated[float, Field(gt=0)] | None = None
    priority: Annotated[int, Field(ge=-100, le=100)] = 0

    def request(self) -> TurnRequest:
        return TurnRequest(
            self.prompt,
            metadata=self.metadata,
            images=[image.model_dump() for image in self.images],
            queue=self.queue,
            auto_resume=self.auto_resume,
            timeout_s=self.timeout_seconds,
            deadline_s=self.deadline_seconds,
            priority=self.priority,
        )


class ToolCall(Answer):
    id: str
    name: str
    status: str


class TurnAnswer(Answer):
    """What came of a turn."""

    response: str
    correlation_id: str
    turn: int
    status: str
    usage: dict[str, Any]
    tool_calls: list[ToolCall]
    finish_reason: str | None = None


class Accepted(Answer):
    """A turn that was taken on; its events are at `events_url`."""

    correlation_id: str
    session_id: str
    status: Literal["accepted", "queued"]
    events_url: str


class Steering(Body):
    content: Annotated[str, Field(min_length=1)]


class Steered(Answer):
    correlation_id: str | None
    delivered: bool


class Cancel(Body):
    immediate: bool = False
    withdraw: bool = False


class Cancelled(Answer):
    state: Literal["none", "graceful", "immediate"]
    running_tools: list[Any]
    withdrawn: list[str] | None = None


class Cancellation(Cancelled):
    is_cancelled: bool
    is_graceful: bool
    is_immediate: bool


class Queue(Answer):
    """Prompts, the next one first. The first ones, `held` in number, were left by a daemon that ended.

    Those do not run by themselves: take one out, or send it again.
    """

    queue: list[str]
    held: int
    total: int


class RemovedPrompt(Answer):
    prompt: str


@submissions.post(
    "/execute",
    response_model=TurnAnswer,
    responses={
        200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}},
        202: {"model": Accepted, "description": "Its events were asked for before, with the same key"},
        **LOADING,
        **problems(499),
    },
)
async def execute(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Execution, request: Request) -> Any:
    """Run a prompt and wait for the end of its turn. With `Accept: text/event-stream`, stream the turn's events.

    A client that stops waiting loses nothing: the turn goes on, and its events can be watched.
    """
    record = await _ready(daemon, caller, session_id, auto_resume=body.auto_resume)
    if MEDIA_TYPE in request.headers.get("accept", ""):
        return await _watched(daemon, caller, record, body.request(), request)
    submitted = await daemon.turns.submit(session_id, body.request(), turn_key(request))
    note_repeated(request, submitted)
    result = await asyncio.shield(submitted.result)
    if (error := result.get("error")) is not None:
        return _failure(request, result, error)
    return TurnAnswer.model_validate(result)


@submissions.post("/execute/stream", status_code=202, responses=LOADING)
async def submit(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Execution, request: Request
) -> Accepted:
    """Run a prompt without waiting; the response confirms that its turn, or its place in the queue, is reserved."""
    record = await _ready(daemon, caller, session_id, auto_resume=body.auto_resume)
    after = await latest_sequence(daemon, record)
    submitted = await daemon.turns.submit(session_id, body.request(), turn_key(request))
    note_repeated(request, submitted)
    return _accepted(submitted, await _beginning(daemon, submitted, after))


@router.post("/steer", status_code=202, responses=LOADING)
async def steer(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Steering) -> Steered:
    """Send a text to the running turn, before its next provider call."""
    await daemon.access.get(caller, session_id)
    return Steered.model_validate(await daemon.live.steer(session_id, body.content))


@router.post("/cancel", response_model_exclude_none=True)
async def cancel(daemon: TheDaemon, caller: Runner, session_id: SessionId, body: Cancel | None = None) -> Cancelled:
    """Stop the running turn: a model at once, tools when they are done, or at once with `immediate` or when called
    twice. With `withdraw`, the queued prompts are taken out and returned, so nothing runs after it.
    """
    await daemon.access.get(caller, session_id)
    body = body or Cancel()
    withdrawn = await _withdraw(daemon, session_id) if body.withdraw else None
    stopping = await daemon.live.cancel(session_id, immediate=body.immediate)
    return Cancelled(**stopping, withdrawn=withdrawn)


async def _withdraw(daemon: Daemon, session_id: str) -> list[str]:
    """Take every prompt out of the queue, and return them in their order."""
    taken: list[str] = []
    for _ in (await daemon.turns.waiting(session_id)).prompts:
        try:
            taken.append(await daemon.turns.remove(session_id, 1))
        except NothingToSteerError:  # the next one has begun meanwhile, and is stopped with the turn
            break
    return taken


@router.get("/cancel")
async def get_cancellation(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> Cancellation:
    """Show the progress of cancelling the running turn."""
    await daemon.access.get(caller, session_id)
    return Cancellation.model_validate(await daemon.live.cancellation(session_id))


@router.get("/queue")
async def list_queue(daemon: TheDaemon, caller: Reader, session_id: SessionId) -> Queue:
    """List the queued prompts."""
    await daemon.access.get(caller, session_id)
    found = await daemon.turns.waiting(session_id)
    return Queue(queue=list(found.prompts), held=found.held, total=len(found.prompts))


@router.delete("/queue/{position}", responses=LOADING)
async def remove_queued(
    daemon: TheDaemon, caller: Runner, session_id: SessionId, position: Annotated[int, Path(ge=1, le=10_000)]
) -> RemovedPrompt:
    """Remove a prompt from the queue; the first one has position 1."""
    await daemon.access.get(caller, session_id)
    return RemovedPrompt(prompt=await daemon.turns.remove(session_id, position))


async def _ready(daemon: Daemon, caller: Caller, session_id: str, *, auto_resume: bool) -> SessionRecord:
    """Return a session that may execute.

    Raises:
        SessionStateError: it has not been started, or has ended.
    """
    record = await daemon.access.get(caller, session_id)
    if record.status == "created" or (record.status != "active" and not auto_resume):
        raise state_conflict(session_id, record.status, "execute")
    return record


async def _watched(
    daemon: Daemon, caller: Caller, record: SessionRecord, turn: TurnRequest, request: Request
) -> Response:
    """Submit a turn and answer with its events; one that was submitted before with where they are."""
    after = await latest_sequence(daemon, record)
    watch = await session_watch(daemon, caller, record, EventFilter(), after=str(after))
    try:
        submitted = await daemon.turns.submit(record.session_id, turn, turn_key(request))
    except BaseException:
        watch.close()
        raise
    note_repeated(request, submitted)
    if submitted.is_repeated:
        watch.close()
        accepted = _accepted(submitted, await _beginning(daemon, submitted, after))
        return JSONResponse(accepted.model_dump(), 202)
    accepted = _accepted(submitted, after)
    return turn_stream(
        daemon,
        caller,
        watch,
        record.session_id,
        correlation_id=accepted.correlation_id,
        events_url=accepted.events_url,
        repeat=JSONResponse(accepted.model_dump(), 202),
    )


async def _beginning(daemon: Daemon, submitted: SubmittedTurn, latest: int) -> int:
    """Return the number of the stored event after which a turn begins."""
    if not submitted.is_repeated:
        return latest
    read_page = daemon.home.sessions.runtime.store.read_event_page
    async with aclosing(event_batches(read_page, submitted.session_id)) as batches:
        async for batch in batches:
            for event in batch:
                if event.get("correlation_id") == submitted.correlation_id:
                    return min(latest, int(event["seq"]) - 1)
    return latest


def _accepted(submitted: SubmittedTurn, after: int) -> Accepted:
    return Accepted(
        correlation_id=submitted.correlation_id,
        session_id=submitted.session_id,
        status=submitted.status,
        events_url=f"/api/v1/sessions/{submitted.session_id}/stream?after={after}",
    )


def _failure(request: Request, result: Mapping[str, Any], problem: Mapping[str, Any]) -> Response:
    """Answer with the problem that a turn ended in."""
    facts = {name: result.get(name) for name in ("correlation_id", "turn")}
    return problem_answer(request, {**problem, **facts})
