"""A completion as a stream of OpenAI's chunks: one that ends with its client, and one that goes on without it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import run_to_end, start_task
from amplifierd.daemon.completions import RunningCompletion
from amplifierd.problems import public_document

from .event_stream import KEEPALIVE, MEDIA_TYPE
from .openai_errors import openai_error
from .openai_messages import chunk, finish_reason, tool_calls, usage

_HEADERS = {"Cache-Control": "no-cache"}


@dataclass(frozen=True)
class Chunks:
    """A running completion in OpenAI's words. `head` is what every chunk has."""

    running: RunningCompletion
    head: Mapping[str, Any]
    with_usage: bool
    keepalive_s: float

    def first(self) -> bytes:
        return _data(chunk(self.head, {"role": "assistant", "content": ""}))

    def piece(self, text: str) -> bytes:
        return _data(chunk(self.head, {"content": text})) if text else KEEPALIVE

    async def last(self) -> bytes:
        """Return what follows the text, once the turn has ended: its calls and why it ended, or how it failed."""
        try:
            done = await self.running.done()
        except AmplifierError as error:
            return _data(openai_error(public_document(error)))
        told = [chunk(self.head, {"tool_calls": tool_calls(done.calls, numbered=True)})] if done.calls else []
        told.append(chunk(self.head, {}, finish_reason(done)))
        if self.with_usage:
            told.append({**self.head, "object": "chat.completion.chunk", "choices": [], "usage": usage(done.usage)})
        return b"".join(map(_data, told)) + b"data: [DONE]\n\n"


class CompletionStream(StreamingResponse):
    """The chunks of a completion. What it runs in is let go of when the client leaves, also before the first chunk."""

    def __init__(self, chunks: Chunks, runs_in: AsyncExitStack) -> None:
        super().__init__(_frames(chunks), media_type=MEDIA_TYPE, headers=_HEADERS)
        self._runs_in = runs_in

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await run_to_end(self._runs_in.aclose())


class OutlastingCompletionStream(StreamingResponse):
    """The chunks of a completion that goes on to its end if the client leaves; `whole` is all of it then, in one go."""

    def __init__(self, chunks: Chunks, runs_in: AsyncExitStack) -> None:
        super().__init__(self._frames(), media_type=MEDIA_TYPE, headers=_HEADERS)
        self._waiting: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.whole = start_task(self._run(chunks, runs_in))

    async def _frames(self) -> AsyncIterator[bytes]:
        while (frame := await self._waiting.get()) is not None:
            yield frame

    async def _run(self, chunks: Chunks, runs_in: AsyncExitStack) -> Response:
        texts: list[str] = []
        async with runs_in:
            try:
                self._waiting.put_nowait(chunks.first())
                async for text in chunks.running.pieces(chunks.keepalive_s):
                    texts.append(text)
                    self._waiting.put_nowait(chunks.piece(text))
                last = await chunks.last()
                self._waiting.put_nowait(last)
            finally:
                self._waiting.put_nowait(None)
        text = "".join(texts)
        body = chunks.first() + (chunks.piece(text) if text else b"") + last
        return Response(body, media_type=MEDIA_TYPE, headers=_HEADERS)


async def _frames(chunks: Chunks) -> AsyncIterator[bytes]:
    yield chunks.first()
    async for text in chunks.running.pieces(chunks.keepalive_s):
        yield chunks.piece(text)
    yield await chunks.last()


def _data(value: Any) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"
