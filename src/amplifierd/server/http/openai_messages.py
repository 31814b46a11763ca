"""Chat completions in OpenAI's words: what a request says, as a conversation of ours, and what is answered."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Literal

from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from amplifier_core.exceptions import AmplifierError
from amplifier_system.tasks import run_to_end, start_task
from amplifierd.exceptions import RequestRefusedError
from amplifierd.problems import public_document
from amplifierd.server.completions import AskedCompletion, Completion, RunningCompletion
from amplifierd.sessions.layers.client_turns import ClientTurn

from .event_stream import KEEPALIVE, MEDIA_TYPE
from .problem_answers import openai_error

_DATA_URL = re.compile(r"data:(image/[a-z0-9.+-]+);base64,(.+)", re.DOTALL)


class _Lenient(BaseModel):
    """Fields that we do not know are ignored: clients send what other servers understand."""

    model_config = ConfigDict(extra="ignore")


class FunctionCall(_Lenient):
    name: str
    arguments: str = ""


class ToolCallMessage(_Lenient):
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(_Lenient):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[dict[str, Any]] | None = None
    tool_calls: list[ToolCallMessage] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class Function(_Lenient):
    name: str = Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")
    description: str | None = None
    parameters: dict[str, Any] | None = None


class FunctionTool(_Lenient):
    type: Literal["function"]
    function: Function


class StreamOptions(_Lenient):
    include_usage: bool = False


class ChatCompletionBody(_Lenient):
    """The body of `POST /v1/chat/completions`; `model` is the id of a profile."""

    model: str
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool = False
    stream_options: StreamOptions | None = None
    tools: list[FunctionTool] | None = None
    temperature: float | None = Field(default=None, ge=0, le=2)
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    stop: str | list[str] | None = None
    user: str | None = None


def read_completion(body: ChatCompletionBody) -> AskedCompletion:
    """Return what a request asks for: the last message of the user is the prompt, what is before it is history.

    Raises:
        RequestRefusedError: there is no message of the user, or an image that cannot be read.
    """
    last = next((at for at in reversed(range(len(body.messages))) if body.messages[at].role == "user"), None)
    if last is None:
        raise RequestRefusedError("messages contains no user message", code="invalid-request")
    asked, later = body.messages[last], body.messages[last + 1 :]
    text, images = _parts(asked.content)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop
    options = {"temperature": body.temperature, "stop": stop}
    options["max_output_tokens"] = body.max_completion_tokens or body.max_tokens
    return AskedCompletion(
        profile=body.model,
        prompt=text,
        images=images,
        history=tuple(_message(message) for message in body.messages[:last]),
        client=ClientTurn(
            tools=[tool.function.model_dump(exclude_none=True) for tool in body.tools or ()],
            answers=[_answer(message) for message in later if message.role == "assistant"],
            results={str(one.tool_call_id): _parts(one.content)[0] for one in later if one.role == "tool"},
            options={name: value for name, value in options.items() if value is not None},
        ),
        results=[
            (one.name or str(one.tool_call_id), _parts(one.content)[0])
            for one in body.messages[_after_last_answer(body.messages) :]
            if one.role == "tool"
        ],
        user=body.user,
    )


def _after_last_answer(messages: Sequence[ChatMessage]) -> int:
    return max((at + 1 for at, message in enumerate(messages) if message.role == "assistant"), default=0)


def _message(message: ChatMessage) -> dict[str, Any]:
    """Return an earlier message as our transcripts have it."""
    text, images = _parts(message.content)
    content: Any = [{"type": "text", "text": text}, *images] if images else text
    data: dict[str, Any] = {"role": message.role, "content": content}
    if message.tool_calls:
        data["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.role == "tool":
        data["tool_call_id"] = message.tool_call_id
    return data


def _answer(message: ChatMessage) -> dict[str, Any]:
    calls = [_call(call) for call in message.tool_calls or ()]
    return {"content": _parts(message.content)[0], "tool_calls": calls}


def _call(call: ToolCallMessage) -> dict[str, Any]:
    try:
        arguments = json.loads(call.function.arguments or "{}")
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise RequestRefusedError(
            f"the arguments of tool call {call.id!r} are not a JSON object", code="invalid-request"
        )
    return {"id": call.id, "name": call.function.name, "arguments": arguments}


def _parts(content: str | Sequence[Mapping[str, Any]] | None) -> tuple[str, tuple[dict[str, Any], ...]]:
    """Return the text of a message and its images as content blocks."""
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    images: list[dict[str, Any]] = []
    for part in content:
        if part.get("type") == "text":
            texts.append(str(part.get("text") or ""))
        elif part.get("type") == "image_url":
            images.append(_image(part.get("image_url")))
    return "\n".join(texts), tuple(images)


def _image(value: Any) -> dict[str, Any]:
    url = value.get("url") if isinstance(value, Mapping) else value
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if found is None:
        raise RequestRefusedError("an image has to be given as a data: URL in base64", code="invalid-request")
    return {"type": "image", "source": {"type": "base64", "media_type": found[1], "data": found[2]}}


def completion_answer(done: Completion, head: Mapping[str, Any]) -> dict[str, Any]:
    """Return a whole answer."""
    message: dict[str, Any] = {"role": "assistant", "content": done.text or None if done.calls else done.text}
    if done.calls:
        message["tool_calls"] = tool_calls(done.calls)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish_reason(done)}
    return {**head, "object": "chat.completion", "choices": [choice], "usage": usage(done.usage)}


def chunk(head: Mapping[str, Any], delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return a piece of an answer."""
    choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
    return {**head, "object": "chat.completion.chunk", "choices": [choice]}


def tool_calls(calls: Sequence[Mapping[str, Any]], *, numbered: bool = False) -> list[dict[str, Any]]:
    """Return calls for the client in OpenAI's shape; those of a stream have numbers."""
    return [
        {
            **({"index": number} if numbered else {}),
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call["arguments"], ensure_ascii=False)},
        }
        for number, call in enumerate(calls)
    ]


def finish_reason(done: Completion) -> str:
    if done.calls:
        return "tool_calls"
    return "length" if done.finish_reason in ("length", "max_tokens", "budget") else "stop"


def usage(used: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a turn used in OpenAI's shape, with its cost in USD where it is known."""
    tokens = used.get("tokens") or {}
    given, made = int(tokens.get("input") or 0), int(tokens.get("output") or 0)
    data: dict[str, Any] = {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made}
    data["prompt_tokens_details"] = {"cached_tokens": int(tokens.get("cache_read") or 0)}
    return {**data, "cost": used.get("cost_usd")}


# A completion as a stream of OpenAI's chunks: one that ends with its client, and one that goes on without it.


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
        lines = [chunk(self.head, {"tool_calls": tool_calls(done.calls, numbered=True)})] if done.calls else []
        lines.append(chunk(self.head, {}, finish_reason(done)))
        if self.with_usage:
            lines.append({**self.head, "object": "chat.completion.chunk", "choices": [], "usage": usage(done.usage)})
        return b"".join(map(_data, lines)) + b"data: [DONE]\n\n"


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
