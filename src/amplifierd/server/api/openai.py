"""Profiles as models: every client that speaks OpenAI's chat completions can use one."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal

from fastapi import Header, Request
from fastapi.responses import JSONResponse
from starlette.responses import Response

from amplifierd.exceptions import ProfileNotFoundError, TurnFailedError
from amplifierd.profiles.builds.profile_catalogue import Profile
from amplifierd.server.completions import RunningCompletion, completing
from amplifierd.server.daemon import Daemon
from amplifierd.server.http.dependencies import Runner, TheDaemon
from amplifierd.server.http.event_stream import STREAMED
from amplifierd.server.http.idempotent_route import HEADER, OutlastingRoute
from amplifierd.server.http.models import Answer, problems
from amplifierd.server.http.openai_messages import (
    ChatCompletionBody,
    Chunks,
    CompletionStream,
    OutlastingCompletionStream,
    completion_answer,
    read_completion,
)
from amplifierd.server.http.problem_answers import error_answer
from amplifierd.server.http.routers import root_router
from amplifierd.server.http.session_paths import SESSION_HEADERS

PREFIX = "/v1"


class _CompletionRoute(OutlastingRoute):
    told_apart_by = SESSION_HEADERS


router = root_router(PREFIX, tags=["openai"], route_class=_CompletionRoute)

SessionHeader = Annotated[str | None, Header(description="the stored session to continue")]


class Model(Answer):
    """A profile; `created` is when it was last changed, in seconds since 1970."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "amplifier"


class Models(Answer):
    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/models")
async def list_models(daemon: TheDaemon, caller: Runner) -> Models:
    """List the profiles that can be used, as models."""
    profiles = await asyncio.to_thread(daemon.home.profiles.list)
    return Models(data=[_model(profile) for profile in profiles if profile.valid])


@router.get("/models/{model:path}", responses=problems(404))
async def show_model(model: str, daemon: TheDaemon, caller: Runner) -> Model:
    """Show one profile as a model."""
    return _model(await _profile(daemon, model))


@router.post(
    "/chat/completions",
    response_model=None,
    responses={200: {"content": STREAMED[200]["content"]}, **problems(404, 409, 499, 502, 504)},
)
async def complete(
    request: Request,
    body: ChatCompletionBody,
    daemon: TheDaemon,
    caller: Runner,
    x_amplifier_session: SessionHeader = None,
    x_session_id: SessionHeader = None,
    x_client_session_id: SessionHeader = None,
) -> Response:
    """Run one turn of a profile; in a stored session where a header names one.

    With a key, the turn goes on if the client leaves, and the same request gets its answer, a stream in one go.
    """
    session_id = x_amplifier_session or x_session_id or x_client_session_id
    asked = read_completion(body)
    if session_id is None:
        await _profile(daemon, body.model)
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": body.model}
    outlasts = HEADER in request.headers
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(completing(daemon, caller, asked, session_id))
        if not body.stream:
            return await _answered(request, running, head, is_alone=session_id is None and not outlasts)
        runs_in = stack.pop_all()
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    chunks = Chunks(running, head, with_usage, daemon.home.settings.stream.keepalive_seconds)
    return OutlastingCompletionStream(chunks, runs_in) if outlasts else CompletionStream(chunks, runs_in)


async def _answered(request: Request, running: RunningCompletion, head: dict[str, Any], *, is_alone: bool) -> Response:
    """Wait for the end of a turn and return its answer; one that belongs to this request alone ends with it."""
    async for _ in running.pieces(keepalive_s=1.0):
        if is_alone and await request.is_disconnected():
            await running.cancel()
    try:
        return JSONResponse(completion_answer(await running.done(), head))
    except TurnFailedError as error:
        return error_answer(request, error)


async def _profile(daemon: Daemon, model: str) -> Profile:
    """Return the profile that a model stands for.

    Raises:
        ProfileNotFoundError: there is none of that id that could be used.
    """
    try:
        profile = await asyncio.to_thread(daemon.home.profiles.get, model)
    except ValueError:  # it cannot be an id
        profile = None
    if profile is None or not profile.valid:
        raise ProfileNotFoundError(f"there is no model {model!r}", hint="GET /v1/models lists them")
    return profile


def _model(profile: Profile) -> Model:
    created = int(profile.path.stat().st_mtime) if profile.path.exists() else 0
    return Model(id=str(profile.profile_id), created=created)
