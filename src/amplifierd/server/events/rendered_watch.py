"""A watch whose messages and blocks carry their HTML as well.

What is complete has its `html` beside its text. A block that is still coming is rendered at most five times a second:
then an event of the same name follows, with no further text, with the `html` of the block so far and its `length` in
characters. No event is kept waiting for that.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from amplifier_system.tasks import start_task
from amplifierd.store.cursor import Cursor
from amplifierd.store.json_lines import encoded

from .event_watch import Batch, Watch
from .published_event import PublishedEvent
from .renderer import Renderer

INTERVAL_S = 0.2
_PATIENCE = 4
"""A text that takes long to render is rendered less often: this many times as long is waited."""

_LONGEST = 64 * 1024
"""Characters of a block that is rendered while it comes; a longer one is rendered when it is complete."""

_TEXTS = ("text", "thinking", "content")
_PIECES = {"llm:stream_block_delta": "text", "content_block:delta": "delta", "thinking:delta": "delta"}
_SHOWN = frozenset({"text", "thinking"})
_WHOLE = frozenset({"content_block:end", "user_message:saved", "assistant_message:complete", "thinking:final"})
_ENDS = "llm:stream_block_end"
_OVER = frozenset({"assistant_message:complete", "execution:done", "llm:response", "llm:stream_aborted", "stream:gap"})


@dataclass(eq=False)
class _Block:
    """What has come of a block, and how much of it was rendered."""

    latest: dict[str, Any]
    event: PublishedEvent
    key: str
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    rendered: int = 0
    not_before: float = 0.0

    def is_due(self, moment: float) -> bool:
        return self.rendered < self.length <= _LONGEST and self.not_before <= moment


class RenderedWatch:
    """Passes on what another watch yields, and adds HTML."""

    def __init__(self, watch: Watch, renderer: Renderer) -> None:
        self._watch, self._renderer = watch, renderer
        self._blocks: dict[tuple[Any, ...], _Block] = {}

    @property
    def is_overflowed(self) -> bool:
        return self._watch.is_overflowed

    def frame(self, event: PublishedEvent) -> bytes:
        return self._watch.frame(event)

    def close(self) -> None:
        self._watch.close()

    async def batches(self, keepalive_s: float) -> AsyncGenerator[Batch, None]:
        batches = self._watch.batches(keepalive_s)
        coming = start_task(_next(batches))
        rendering: asyncio.Task[Batch] | None = None
        try:
            while True:
                if rendering is None and (block := self._due()) is not None:
                    rendering = start_task(self._render(block))
                tasks = {coming} if rendering is None else {coming, rendering}
                patience_s = self._until_due() if rendering is None else None
                await asyncio.wait(tasks, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
                if rendering is not None and rendering.done():
                    if shown := rendering.result():
                        yield shown
                    rendering = None
                if coming.done():
                    if (batch := coming.result()) is None:
                        return
                    yield [await self._completed(event) for event in batch]
                    coming = start_task(_next(batches))
        finally:
            left = [task for task in (coming, rendering) if task is not None]
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)

    async def _completed(self, event: PublishedEvent) -> PublishedEvent:
        """Take note of a piece; give a whole message or block its HTML, after which nothing more is told of it."""
        if event.name in _OVER:
            self._blocks = {
                place: block for place, block in self._blocks.items() if event.session_id not in (None, place[0])
            }
        if event.name in _PIECES:
            self._take(event)
        elif event.name == _ENDS or event.name in _WHOLE:
            envelope = event.envelope()
            data = envelope.get("data")
            if isinstance(data, dict):
                await self._add_html(data, self._blocks.pop(_place(event, data), None))
                return _changed(event, envelope, event.cursor)
        return event

    async def _add_html(self, data: dict[str, Any], streamed: _Block | None) -> None:
        whole = data.get("block")
        await add_html(whole if isinstance(whole, dict) else data, self._renderer)
        if streamed is not None and "html" not in data and not isinstance(whole, dict):
            data["html"] = await self._renderer.render("".join(streamed.pieces))

    def _take(self, event: PublishedEvent) -> None:
        envelope = event.envelope()
        data, key = envelope.get("data"), _PIECES[event.name]
        if not isinstance(data, dict) or not isinstance(data.get(key), str):
            return
        if data.get("block_type", "text") not in _SHOWN:
            return
        block = self._blocks.setdefault(_place(event, data), _Block(envelope, event, key))
        block.latest, block.event = envelope, event
        block.pieces.append(data[key])
        block.length += len(data[key])

    def _due(self) -> _Block | None:
        moment = time.monotonic()
        return next((block for block in self._blocks.values() if block.is_due(moment)), None)

    def _until_due(self) -> float | None:
        """Return how long nothing is to be rendered, None when nothing waits for it."""
        waiting = [block.not_before for block in self._blocks.values() if block.rendered < block.length <= _LONGEST]
        return max(0.0, min(waiting) - time.monotonic()) if waiting else None

    async def _render(self, block: _Block) -> Batch:
        begun, length = time.monotonic(), block.length
        block.pieces = ["".join(block.pieces)]
        html = await self._renderer.render(block.pieces[0][:length])
        if block not in self._blocks.values():
            return ()
        block.rendered = length
        block.not_before = time.monotonic() + max(INTERVAL_S, _PATIENCE * (time.monotonic() - begun))
        data = {**block.latest["data"], block.key: "", "html": html, "length": length}
        return [_changed(block.event, {**block.latest, "sequence": None, "cursor": None, "data": data}, None)]


async def rendered(message: dict[str, Any], renderer: Renderer) -> dict[str, Any]:
    """Return a message with the HTML of what was said; what a tool answered is not markdown."""
    if message.get("role") == "tool":
        return message
    content = message.get("content")
    copy = {**message, "content": [*map(dict, content)]} if _is_blocks(content) else {**message}
    await add_html(copy, renderer)
    return copy


def _is_blocks(content: object) -> TypeGuard[list[dict[str, Any]]]:
    return isinstance(content, list) and all(isinstance(block, dict) for block in content)


async def add_html(part: dict[str, Any], renderer: Renderer) -> None:
    """Give a message or a block the HTML of its text; the blocks of a message each have their own."""
    content = part.get("content")
    if _is_blocks(content):
        for block in content:
            if block.get("type") in _SHOWN:
                await add_html(block, renderer)
        return
    text = next((part[key] for key in _TEXTS if isinstance(part.get(key), str)), None)
    if text is not None:
        part["html"] = await renderer.render(text)


async def _next(batches: AsyncIterator[Batch]) -> Batch | None:
    return await anext(batches, None)


def _place(event: PublishedEvent, data: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what the pieces of one block have in common."""
    kind = event.name.partition(":")[0]
    return event.session_id, kind, data.get("request_id"), data.get("block_index")


def _changed(event: PublishedEvent, envelope: Mapping[str, Any], cursor: Cursor | None) -> PublishedEvent:
    changed = PublishedEvent(
        event.name,
        encoded(envelope),
        session_id=event.session_id,
        root_id=event.root_id,
        cursor=cursor,
        is_delta=event.is_delta,
    )
    changed.number = event.number if cursor is not None else 0
    return changed
