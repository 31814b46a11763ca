"""The session's wish to stop, as a turn sees it; what a coordinator's token lacks counts as not asked for."""

import logging

from amplifier_core.boundary import Boundary, at_once
from amplifier_kit.types import Coordinator

logger = logging.getLogger(__name__)


class Cancellation:
    """A cancellation token, or what there is of one."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._token = token = getattr(coordinator, "cancellation", None)
        self._register_start = getattr(token, "register_tool_start", None)
        self._register_end = getattr(token, "register_tool_complete", None)

    @property
    def is_requested(self) -> bool:
        """Whether the turn is to stop when its running tools are done."""
        return getattr(self._token, "is_cancelled", False) is True

    @property
    def is_immediate(self) -> bool:
        """Whether the turn is to stop now."""
        return getattr(self._token, "is_immediate", False) is True

    @property
    def state(self) -> str:
        """How the turn is cancelled; a cancelled task leaves no choice."""
        state = getattr(self._token, "state", "immediate") if self.is_requested else "immediate"
        return str(getattr(state, "value", state))

    def register_tool(self, call_id: str, name: str) -> None:
        """Have a call counted as running, and shown under `name`."""
        if self._register_start is not None:
            at_once(self._register_start(call_id, name))

    def unregister_tool(self, call_id: str) -> None:
        if self._register_end is not None:
            at_once(self._register_end(call_id))

    async def trigger_callbacks(self) -> None:
        """Announce that the turn is cancelled."""
        trigger = getattr(self._token, "trigger_callbacks", None)
        if trigger is not None:
            with Boundary(logger, "a cancellation callback failed: %s", level=logging.ERROR):
                await trigger()
