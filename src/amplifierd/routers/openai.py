"""Profiles as models: every client that speaks OpenAI's chat completions can use one."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Annotated, Any, Literal

from fastapi import Header, Request
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import run_to_end
from amplifierd.builds.profile import Profile
from amplifierd.daemon.completions import RunningCompletion, completing
from amplifierd.daemon.daemon import Daemon
from amplifierd.exceptions import ProfileNotFoundError
from amplifierd.http.dependencies import Runner, TheDaemon
from amplifierd.http.event_stream import STREAMED
from amplifierd.http.models import Answer, problems
from amplifierd.http.openai_errors import openai_error
from amplifierd.http.openai_messages import (
    ChatCompletionBody,
    chunk,
    completion_answer,
    finish_reason,
    read_completion,
    tool_calls,
    usage,
)
from amplifierd.http.routers import root_router
from amplifierd.problems import public_document

PREFIX = "/v1"

router = root_router(PREFIX, tags=["openai"])

SessionHeader = Annotated[str | None, Header(description="the stored session to go on with")]


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
    """Run one turn of a profile; in a stored session where a header names one."""
    session_id = x_amplifier_session or x_session_id or x_client_session_id
    asked = read_completion(body)
    if session_id is None:
        await _profile(daemon, body.model)
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time()), "model": body.model}
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(completing(daemon, caller, asked, session_id))
        if not body.stream:
            return JSONResponse(completion_answer(await _ended(request, running, session_id), head))
        kept = stack.pop_all()
    with_usage = body.stream_options is not None and body.stream_options.include_usage
    keepalive_s = daemon.home.settings.stream.keepalive_seconds
    return _CompletionStream(_chunks(running, head, with_usage=with_usage, keepalive_s=keepalive_s), kept)


async def _ended(request: Request, running: RunningCompletion, session_id: str | None) -> Any:
    """Wait for the end of a turn; one that belongs to this request alone ends with it."""
    async for _ in running.pieces(keepalive_s=1.0):
        if session_id is None and await request.is_disconnected():
            await running.cancel()
    return await running.done()


class _CompletionStream(StreamingResponse):
    """The pieces of a completion. What it runs in is let go of when the client leaves, also before the first piece."""

    def __init__(self, chunks: AsyncIterator[bytes], kept: AsyncExitStack) -> None:
        super().__init__(chunks, media_type="text/event-stream", headers={"Cache-Control": "no-cache"})
        self._kept = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await run_to_end(self._kept.aclose())


async def _chunks(
    running: RunningCompletion, head: dict[str, Any], *, with_usage: bool, keepalive_s: float
) -> AsyncIterator[bytes]:
    yield _data(chunk(head, {"role": "assistant", "content": ""}))
    async for piece in running.pieces(keepalive_s):
        yield _data(chunk(head, {"content": piece})) if piece else b": keepalive\n\n"
    try:
        done = await running.done()
    except AmplifierError as error:
        yield _data(openai_error(public_document(error)))
        return
    if done.calls:
        yield _data(chunk(head, {"tool_calls": tool_calls(done.calls, numbered=True)}))
    yield _data(chunk(head, {}, finish_reason(done)))
    if with_usage:
        yield _data({**head, "object": "chat.completion.chunk", "choices": [], "usage": usage(done.usage)})
    yield b"data: [DONE]\n\n"


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


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
