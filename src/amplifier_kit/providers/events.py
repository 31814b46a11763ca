"""A provider's way to the hooks of its session.

Every provider emits through a `ProviderEvents`, whatever its coordinator is: none at all, a stub without hooks, or the
real one. An event that cannot be emitted is logged and changes nothing else.
"""

import logging

from amplifier_core import HookRegistry
from amplifier_core.boundary import Boundary, at_once, emit_quietly
from amplifier_kit.mounting import find_mounted
from amplifier_kit.types import Coordinator, EventData

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
        """Say whether anyone will read a part of the payload that is costly to build."""
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
