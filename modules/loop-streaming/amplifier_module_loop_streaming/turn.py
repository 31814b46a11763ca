"""A turn that says its answer while it comes."""

import asyncio
import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from amplifier_core import ToolSpec, events
from amplifier_core.boundary import Boundary, at_once, settle
from amplifier_core.events import CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END, CONTENT_BLOCK_START
from amplifier_core.utils import json_safe
from amplifier_core.utils.tool_messages import Call, block_type
from amplifier_kit.loops.announcements import ResponseAnnouncement
from amplifier_kit.loops.hook_points import HookPoints
from amplifier_kit.loops.requests import RequestBuilder
from amplifier_kit.loops.settings import LoopSettings
from amplifier_kit.loops.tool_calls import Outcome, ToolCalls, failure
from amplifier_kit.loops.transcript import Reply
from amplifier_kit.loops.turn import Turn
from amplifier_kit.messages.conversation import (
    as_response,
    as_returned,
    block_dict,
    content_blocks,
    extra_field,
    read_calls,
    result_text,
    text_of,
    usage_of,
)

# Collecting what a provider streams into the response it amounts to.


_THOUGHTS = ("thinking", "reasoning")


class Piece(NamedTuple):
    """A run of text of one block."""

    block_type: str
    block_index: int
    sequence: int
    text: str
    starts_block: bool


class StreamedResponse:
    """The blocks, calls and usage of a response, chunk by chunk. It can be read like a whole response at any time."""

    finish_reason = None

    def __init__(self) -> None:
        self.usage: Any = None
        self.metadata: dict[str, Any] = {}
        self._blocks: list[tuple[str, list[str]]] = []
        self._calls: dict[Any, Any] = {}
        self._pieces = 0

    def add(self, chunk: dict[str, Any]) -> Piece | None:
        """Take a chunk in; returns the text it brought, if any."""
        for call in chunk.get("tool_calls") or ():
            call_id = call.get("id") if isinstance(call, dict) else getattr(call, "id", None)
            self._calls[call_id or object()] = call  # one that comes again replaces itself
        self.usage = chunk.get("usage") or self.usage
        self.metadata |= chunk.get("metadata") or {}
        kind, text = str(chunk.get("block_type") or "text"), str(chunk.get("content") or "")
        if not text:
            return None
        starts_block = not self._blocks or self._blocks[-1][0] != kind
        if starts_block:
            self._blocks.append((kind, []))
        self._blocks[-1][1].append(text)
        self._pieces += 1
        return Piece(kind, len(self._blocks) - 1, self._pieces - 1, text, starts_block)

    @property
    def text(self) -> str:
        """The answer so far: the text blocks alone."""
        return "".join("".join(texts) for kind, texts in self._blocks if kind == "text")

    @property
    def content(self) -> list[dict[str, Any]]:
        """Text and thoughts as blocks; other kinds are for display while they come."""
        return [_block(kind, texts) for kind, texts in self._blocks if kind == "text" or kind in _THOUGHTS]

    @property
    def tool_calls(self) -> list[Any]:
        """The calls as the provider gave them."""
        return list(self._calls.values())

    async def announce(self, points: HookPoints, piece: Piece) -> None:
        """Tell the hooks of a piece just added."""
        place = {"block_type": piece.block_type, "block_index": piece.block_index}
        if piece.starts_block:
            if piece.block_index:
                await self._announce_end_of(points, piece.block_index - 1)
            await points.emit(CONTENT_BLOCK_START, {**place, "total_blocks": len(self._blocks)})
        await points.emit(CONTENT_BLOCK_DELTA, {**place, "sequence": piece.sequence, "delta": piece.text})

    async def announce_end(self, points: HookPoints) -> None:
        """Tell the hooks that the stream has ended."""
        if self._blocks:
            await self._announce_end_of(points, len(self._blocks) - 1)

    async def _announce_end_of(self, points: HookPoints, index: int) -> None:
        payload: dict[str, Any] = {"block_index": index, "total_blocks": len(self._blocks)}
        if points.listens(CONTENT_BLOCK_END):
            payload["block"] = _block(*self._blocks[index])
        if (usage := usage_of(as_response(self))) is not None:
            payload["usage"] = usage
        await points.emit(CONTENT_BLOCK_END, payload)


def _block(kind: str, texts: list[str]) -> dict[str, Any]:
    text = "".join(texts)
    return {"type": "thinking", "thinking": text} if kind in _THOUGHTS else {"type": kind, "text": text}


logger = logging.getLogger(__name__)

MODULE_ID = "loop-streaming"
RATE_LIMIT_DELAY = "orchestrator:rate_limit_delay"

_TOKEN = re.compile(r"\n|[^\S\n]+|\S+")
_LONGEST_SLEEP_S = 0.05  # how late an immediate cancellation may be noticed while waiting


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """What this loop is configured with beyond what all loops share."""

    stream_delay_s: float = 0.0
    min_delay_between_calls_ms: float = 0.0


class StreamingToolCalls(ToolCalls):
    """Reports a tool that raises like one that returned a failure."""

    async def tool_failed(self, outcome: Outcome, error: Exception) -> None:
        result = failure(error)
        outcome.content = result_text(result)
        await self.emit_error(outcome, type(error).__name__, str(error))
        await self.report(outcome, result)

    def internal_error_text(self, error: Exception) -> str:
        return f"Internal error executing tool: {error}"


class StreamingRequestBuilder(RequestBuilder):
    """Offers a tool that the vendor implements itself in the vendor's own terms."""

    def tool_spec(self, name: str, tool: Any) -> ToolSpec:
        spec = super().tool_spec(name, tool)
        if hasattr(tool.__class__, "native_tool_spec"):
            with Boundary(logger, "the native form of tool %r is unusable; its function form is sent: %s", name):
                native = tool.native_tool_spec
                if isinstance(native, dict) and native.get("type"):
                    return ToolSpec.model_validate({**spec.model_dump(), **native})
        return spec


class StreamingTurn(Turn):
    """Speaks token by token and waits between provider calls where configured."""

    orchestrator = MODULE_ID
    counts_from_one = True
    names_results = True
    last_events = (events.EXECUTION_END, events.ORCHESTRATOR_COMPLETE)
    tool_calls_type = StreamingToolCalls

    def __init__(self, streaming: StreamingSettings, settings: LoopSettings, *state: Any) -> None:
        super().__init__(settings, *state)
        self._streaming = streaming
        self._last_call_ended_s: float | None = None
        self._is_streamed = False

    async def no_provider(self) -> None:
        self.status = "error"
        await self.say("Error: No providers available")

    # --- the provider

    async def prepare(self, name: str, provider: Any, *, is_last: bool) -> Any:
        request = await super().prepare(name, provider, is_last=is_last)
        if request is None or await self._keeps_distance():
            return request
        await self.stop_cancelled()
        return None

    async def _keeps_distance(self) -> bool:
        """Wait until the configured time has passed since the last call of this turn; False if that was broken off."""
        configured = self._streaming.min_delay_between_calls_ms
        if not configured or self._last_call_ended_s is None:
            return True
        elapsed = (time.monotonic() - self._last_call_ended_s) * 1000
        if elapsed >= configured:
            return True
        payload = {
            "delay_ms": configured - elapsed,
            "configured_ms": configured,
            "elapsed_ms": elapsed,
            "iteration": self.iteration,
        }
        await self.points.emit(RATE_LIMIT_DELAY, payload)
        end_s = self._last_call_ended_s + configured / 1000
        while (remaining_s := end_s - time.monotonic()) > 0:
            if self.cancellation.is_immediate:
                return False
            await asyncio.sleep(min(remaining_s, _LONGEST_SLEEP_S))
        return True

    async def call(self, name: str, provider: Any, request: Any) -> Any:
        stream = getattr(provider, "stream", None)
        self._is_streamed = callable(stream)
        try:
            return await (self._read(stream, request) if callable(stream) else super().call(name, provider, request))
        finally:
            self._last_call_ended_s = time.monotonic()

    async def _read(self, stream: Callable[..., Any], request: Any) -> StreamedResponse:
        """Say the text of a streamed response as it arrives; returns the whole, which then takes the usual way."""
        streamed = StreamedResponse()
        chunks = await settle(stream(request, tools=request.tools or [], **self.provider_options()))
        try:
            async for chunk in chunks:
                piece = streamed.add(chunk)
                if piece is not None:
                    await streamed.announce(self.points, piece)
                    if piece.block_type == "text":
                        await self.say(piece.text)
                if self.cancellation.is_immediate:
                    break
        except asyncio.CancelledError:
            with self.task:
                await self._store_partial(streamed)
            raise
        finally:
            with self.task:
                await _close(chunks)
                await streamed.announce_end(self.points)
        if self.cancellation.is_immediate:
            await self._store_partial(streamed)
        return streamed

    async def _store_partial(self, streamed: StreamedResponse) -> None:
        if streamed.text:
            await self.transcript.add({"role": "assistant", "content": streamed.text})

    def read_calls(self, provider: Any, response: Any) -> list[Call]:
        parse = getattr(provider, "parse_tool_calls", None)
        parsed = None if self._is_streamed or not callable(parse) else at_once(parse(as_returned(response)))
        return read_calls(parsed if isinstance(parsed, list | tuple) else response.tool_calls)

    def read_text(self, response: Any) -> str:
        text = extra_field(response, "text")
        return text if isinstance(text, str) and text else text_of(response.content)

    async def announce_blocks(self, announcement: ResponseAnnouncement) -> None:
        if not self._is_streamed:  # else they were announced while they came
            await announcement.announce_blocks(_vendor_data)

    # --- answers

    def assistant_message(self, reply: Reply) -> dict[str, Any]:
        message = super().assistant_message(reply)
        thoughts = (block for block in content_blocks(reply.response) if block_type(block) == "thinking")
        if (thinking := next(thoughts, None)) is not None:
            message["thinking_block"] = block_dict(thinking)
        return message

    async def say_answer(self, text: str) -> None:
        if self._is_streamed:  # already said
            return
        delay_s = self._streaming.stream_delay_s
        if not delay_s and not self.task.is_read:
            await self.say(text)
            return
        for match in _TOKEN.finditer(text):
            token = match.group()
            await self.say(token)
            if delay_s and not token.isspace():
                await asyncio.sleep(delay_s)


def _vendor_data(block: Any) -> dict[str, Any]:
    return {"metadata": json_safe(block.get("raw") if isinstance(block, dict) else getattr(block, "raw", None))}


async def _close(chunks: Any) -> None:
    """Let a stream that is not read any more release what it holds."""
    if callable(close := getattr(chunks, "aclose", None)):
        with Boundary(logger, "a provider's stream could not be closed: %s"):
            await close()
