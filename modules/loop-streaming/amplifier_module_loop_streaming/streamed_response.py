"""Collecting what a provider streams into the response it amounts to."""

from typing import Any, NamedTuple

from amplifier_core.events import CONTENT_BLOCK_DELTA, CONTENT_BLOCK_END, CONTENT_BLOCK_START
from amplifier_kit.loops.hook_points import HookPoints
from amplifier_kit.messages.conversation import as_response, usage_of

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
