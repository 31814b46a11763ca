"""What hooks are told while an answer is streaming in.

One `StreamEvents` serves one attempt. Used as a context manager it closes what is left open, and announces the end of
an attempt that fails after something was shown.
"""

import logging
import uuid
from types import TracebackType
from typing import Literal, Self

from amplifier_core import HookRegistry
from amplifier_core.boundary import Boundary, at_once, emit_quietly
from amplifier_kit.mounting import find_mounted
from amplifier_kit.types import Coordinator, EventData

# A provider's way to the hooks of its session.
#
# Every provider emits through a `ProviderEvents`, whatever its coordinator is: none at all, a stub without hooks,
# or the real one. An event that cannot be emitted is logged and changes nothing else.


logger = logging.getLogger(__name__)

STREAM_BLOCK_START = "llm:stream_block_start"
STREAM_BLOCK_DELTA = "llm:stream_block_delta"
STREAM_BLOCK_END = "llm:stream_block_end"
STREAM_ABORTED = "llm:stream_aborted"
STREAM_EVENTS = (STREAM_BLOCK_START, STREAM_BLOCK_DELTA, STREAM_BLOCK_END, STREAM_ABORTED)


class ProviderEvents:
    """Emits events on the hook registry that the coordinator has at that moment."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    @property
    def hooks(self) -> HookRegistry | None:
        """The registry, or whatever stands in for one; None when nothing can be emitted."""
        hooks = getattr(self._coordinator, "hooks", None)
        if hooks is None and self._coordinator is not None:
            hooks = find_mounted(self._coordinator, "hooks")
        return hooks if callable(getattr(hooks, "emit", None)) else None

    def listens(self, event: str) -> bool:
        """True if anyone will read a part of the payload that is costly to build."""
        hooks = self.hooks
        has_handlers = getattr(hooks, "has_handlers", None)
        if not callable(has_handlers):
            return hooks is not None
        answer = None
        with Boundary(logger, "the registry cannot say who listens to %s: %s", event):
            answer = at_once(has_handlers(event))
        return answer is None or bool(answer)

    async def emit(self, event: str, payload: EventData) -> None:
        await emit_quietly(self.hooks, event, payload)


BlockType = Literal["text", "thinking", "tool_use"]


class StreamEvents:
    """Emits the blocks of one attempt, each with one start and one end.

    A vendor that says where blocks begin and end calls `start`, `delta` and `end`; for one that does not, `feed` finds
    the boundaries.
    """

    def __init__(self, events: ProviderEvents) -> None:
        self.request_id = str(uuid.uuid4())
        self.has_deltas = False
        self._events = events
        self._open: dict[int, BlockType] = {}  # in the order started
        self._sequences: dict[int, int] = {}
        self._next_index = 0

    async def start(self, index: int, block_type: BlockType, *, name: str | None = None) -> None:
        """Begin a block; `name` is the tool of a `tool_use` block."""
        self._open[index] = block_type
        self._next_index = max(self._next_index, index + 1)
        payload: EventData = {"block_index": index, "block_type": block_type}
        if block_type == "tool_use":
            payload["name"] = name or ""
        await self._emit(STREAM_BLOCK_START, payload)

    async def delta(self, index: int, text: str) -> None:
        """Add to a block; an empty fragment is left out, and one of a block that is not open."""
        if not text or index not in self._open:
            return
        sequence = self._sequences.get(index, 0)
        self._sequences[index] = sequence + 1
        self.has_deltas = True
        payload = {"block_index": index, "block_type": self._open[index], "sequence": sequence, "text": text}
        await self._emit(STREAM_BLOCK_DELTA, payload)

    async def end(self, index: int) -> None:
        """End a block; one that has ended already, or never started, is left alone."""
        block_type = self._open.pop(index, None)
        if block_type is not None:
            await self._emit(STREAM_BLOCK_END, {"block_index": index, "block_type": block_type})

    async def feed(self, block_type: Literal["text", "thinking"], text: str) -> None:
        """Add text to the open block of this type; any other open block ends and a new one begins."""
        if not text:
            return
        index = next((index for index, kind in self._open.items() if kind == block_type), None)
        if index is None:
            await self.end_all()
            index = self._next_index
            await self.start(index, block_type)
        await self.delta(index, text)

    async def call(self, name: str) -> None:
        """Announce a tool call for a vendor without block boundaries: it begins and ends here."""
        await self.end_all()
        index = self._next_index
        await self.start(index, "tool_use", name=name)
        await self.end(index)

    async def end_all(self) -> None:
        """End every block that is still open."""
        for index in list(self._open):
            await self.end(index)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if isinstance(error, GeneratorExit):  # a coroutine that is being closed may not wait any more
            return
        await self.end_all()
        if error is not None and self.has_deltas:
            original = error.__cause__ or error
            details = {"type": type(original).__name__, "msg": str(original) or type(original).__name__}
            await self._emit(STREAM_ABORTED, {"error": details})

    async def _emit(self, event: str, payload: EventData) -> None:
        await self._events.emit(event, {"request_id": self.request_id, **payload})
