"""The answer of the Responses API, streamed or not, as one response object."""

from dataclasses import dataclass
from typing import Any

from amplifier_kit.providers.stream import BlockType, StreamEvents
from amplifier_module_provider_openai.errors import OpenAIErrors
from amplifier_module_provider_openai.transport import Reply

_TERMINAL = frozenset({"response.completed", "response.incomplete", "response.failed"})
_BLOCKS: dict[str, BlockType] = {"message": "text", "reasoning": "thinking", "function_call": "tool_use"}
_DELTAS: dict[str, BlockType] = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "text",
    "response.reasoning_summary_text.delta": "thinking",
    "response.reasoning_text.delta": "thinking",
}


@dataclass(frozen=True, slots=True)
class Received:
    """A response object as the vendor completed it, and the headers it came with."""

    response: dict[str, Any]
    headers: dict[str, str]


class ResponseCollector:
    """Reads one answer. `first_index` is the place of its first block, when it continues another answer."""

    def __init__(self, errors: OpenAIErrors, model: str, *, first_index: int = 0) -> None:
        self._errors = errors
        self._model = model
        self._first_index = first_index
        self._items: dict[int, dict[str, Any]] = {}
        self._started: set[int] = set()

    async def collect(self, reply: Reply, told: StreamEvents) -> Received:
        """Return the response, which may have failed; a stream that did not come to its end is a `StreamError`."""
        response = await self._read(reply, told) if reply.is_stream else await reply.document()
        if not response.get("output") and self._items:
            response = {**response, "output": [self._items[index] for index in sorted(self._items)]}
        return Received(response, reply.headers)

    async def _read(self, reply: Reply, told: StreamEvents) -> dict[str, Any]:
        async for event in reply:
            kind = event.get("type")
            if kind in _TERMINAL:
                await told.end_all()
                await reply.drain()
                response = event.get("response")
                return response if isinstance(response, dict) else {}
            if kind == "error":
                raise self._errors.in_stream(event, model=self._model)
            await self._tell(str(kind), event, told)
        raise self._errors.broke_off("the stream ended without a final event", model=self._model)

    async def _tell(self, kind: str, event: dict[str, Any], told: StreamEvents) -> None:
        place = event.get("output_index")
        if not isinstance(place, int):
            return
        index = self._first_index + place
        if kind == "response.output_item.added":
            await self._start(index, event.get("item") or {}, told)
        elif kind == "response.output_item.done":
            self._items[place] = event.get("item") or {}
            await self._start(index, self._items[place], told)
            await told.end(index)
        elif kind in _DELTAS:
            if index not in self._started:
                self._started.add(index)
                await told.start(index, _DELTAS[kind])
            await told.delta(index, str(event.get("delta") or ""))
        elif kind == "response.reasoning_summary_part.added" and event.get("summary_index"):
            await told.delta(index, "\n")

    async def _start(self, index: int, item: dict[str, Any], told: StreamEvents) -> None:
        block_type = _BLOCKS.get(str(item.get("type")))
        if block_type and index not in self._started:
            self._started.add(index)
            await told.start(index, block_type, name=item.get("name"))
